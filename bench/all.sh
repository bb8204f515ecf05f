#!/bin/sh
# Everything we claim, measured; about half an hour on two cores. Nothing else should run meanwhile.
set -eu
cd "$(dirname "$0")/.."
[ -x bench/.peers/bin/python ] || sh bench/peers.sh
for job in "startup.py" "queue_sqlite.py" "crawl.py --pages 2000 --repeats 3" "crawl.py --polite" "memory.py" "kill_resume.py" "reaction.py" "urls.py" "url_list.py" "hostile.py" "queue_redis.py" "queue_postgres.py" "queues.py" "fleet.py" "autoscale.py --interval 3 --cycles 5 --pages 1000" "sizing.py" "plan.py" "shards.py" "paced.py" "simulate/compare.py" "needs.py" "routes.py" "blocks.py" "recrawl.py" "browser.py --pages 400 --rounds 1" "browser.py --only shoal --rounds 1" "auto.py" "queue_inspect.py" "server_load.py" "remote_queue.py" "seen_sets.py" "cache.py" "celery_pool.py" "rabbitmq.py" "amqp_client.py" "huge_host.py"; do
  echo "== $job"
  # shellcheck disable=SC2086
  .venv/bin/python bench/$job
done
