"""scrapy-redis' own frontier: every request through its duplicate filter, pushed, popped."""

from __future__ import annotations

import os
import sys
import time

import redis
from report import report
from scrapy import Request, Spider
from scrapy.utils.test import get_crawler
from scrapy_redis.dupefilter import RFPDupeFilter
from scrapy_redis.queue import PriorityQueue


def main() -> None:
    count = int(sys.argv[1])
    server = redis.Redis.from_url(os.environ["BENCH_BACKEND"])
    crawler = get_crawler(Spider, {"REQUEST_FINGERPRINTER_IMPLEMENTATION": "2.7"})
    spider = Spider("bench")
    spider.crawler = crawler
    seen = RFPDupeFilter(server, "bench:dupefilter")
    seen.fingerprinter = crawler.request_fingerprinter
    queue = PriorityQueue(server, spider, "bench:requests")
    start, cpu = time.perf_counter(), time.process_time()
    for n in range(count):
        request = Request(f"http://h{n % 1000}.example/catalogue/page-{n}.html")
        if not seen.request_seen(request):
            queue.push(request)
    adding = time.perf_counter() - start
    popped = 0
    while queue.pop() is not None:
        popped += 1
    assert popped == count
    seconds = time.perf_counter() - start
    report(count, adding, count / seconds, (time.process_time() - cpu) / count)


main()
