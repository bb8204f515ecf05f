"""Profiles and followers of some users, scraped by the workers of the queue.

python examples/fleet/ask.py ada grace       with SHOAL_QUEUE set to the workers' queue
"""

import asyncio
import sys

import shoal


class People(shoal.Coordinator):
    every = 2.0  # seconds between progress messages

    async def scrape_many_profiles(self, usernames):
        ids = await self.fan_out("scrape_profile", [{"username": name} for name in usernames], priority=1)
        return await self.wait(ids, timeout=60)

    async def count_followers(self, usernames, limit=15):
        wanted = [{"username": name, "limit": limit} for name in usernames]
        results = await self.wait(await self.fan_out("scrape_followers", wanted), timeout=60)
        return [len(result.records) for result in results]


async def main(usernames):
    async with People() as people:
        profiles = await people.scrape_many_profiles(usernames)
        followers = await people.count_followers(usernames)
        for name, profile, count in zip(usernames, profiles, followers, strict=True):
            print(f"{name}: {profile.value['name'] if profile.ok else profile.error}, {count} followers")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
