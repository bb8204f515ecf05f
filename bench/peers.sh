#!/bin/sh
# Install the peers shoal is measured against into bench/.peers, apart from shoal's own environment.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
[ -x "$here/.peers/bin/python" ] || "$python" -m venv "$here/.peers"
"$here/.peers/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade \
    scrapy 'crawlee[parsel,sql-sqlite,playwright]' 'celery[redis]' aio-pika huey 'procrastinate' 'psycopg[binary,pool]' scrapy-redis scrapy-playwright selectolax msgspec uvloop aiohttp httpx brotli backports.zstd
"$here/.peers/bin/python" -m pip list 2>/dev/null |
    grep -iE '^(scrapy|twisted|crawlee|parsel|lxml|selectolax|uvloop|msgspec|celery|kombu|aio-pika|redis|huey|procrastinate|psycopg|scrapy-redis|scrapy-playwright|playwright|sqlalchemy|aiosqlite|impit|httpx) '
