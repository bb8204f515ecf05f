"""Pushes tasks straight to workers instead of leaving it to them what they take.

export SHOAL_ACCEPT_TOKEN=$(openssl rand -hex 32)                the same for everybody
shoal worker examples/fleet/people.py --accept 127.0.0.1:9470    any number, each with a port of its own
python examples/fleet/push.py ada grace                          with SHOAL_QUEUE set to the workers' queue
"""

import asyncio
import sys

import shoal


async def main(usernames):
    async with (
        shoal.LoadBalancer(strategy="least_loaded", health_check_interval=5) as balancer,
        shoal.connect() as client,
    ):
        # Workers of the queue are found by themselves; others: balancer.register_worker("w1", "http://10.0.0.5:9470")
        ids = []
        for name in usernames:
            worker = await balancer.get_worker()
            ids.append(await worker.submit(shoal.Task(type="scrape_profile", payload={"username": name})))
            print(f"{name}: pushed to {worker.url}")
        for name, result in zip(usernames, await client.wait_for_results(ids, timeout=60), strict=True):
            print(f"{name}: {result.value['name'] if result.ok else result.error}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
