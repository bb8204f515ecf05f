"""A Celery app with shoal in it: pages by messages, and a task of the app's own after each of them.

celery -A shop worker                                # in this folder; CELERY_BROKER_URL says where Redis is
python shop.py https://shop.example/ https://…       # in another terminal: some pages, and what became of them
"""

import json
import os
import sys
from pathlib import Path

from celery import Celery, group

from shoal.integrations.celery import install

BROKER = os.environ.get("CELERY_BROKER_URL", "redis://127.0.0.1:6379/0")

app = Celery("shop", broker=BROKER, backend=os.environ.get("CELERY_RESULT_BACKEND", BROKER))
app.conf.update(accept_content=["json"], worker_send_task_events=True, task_send_sent_event=True)
install(app, celery_allow="shop.*")


@app.task(name="shop.index", bind=True)
def index(self, url, run, task, count, records):
    """Sent once a page is done and stored; it may come twice, with the same id."""
    with Path("indexed.jsonl").open("a") as file:
        file.write(json.dumps({"id": self.request.id, "url": url, "records": records}) + "\n")


def main(urls):
    crawl_url = app.tasks["shoal.crawl_url"]
    pages = group(crawl_url.s(url, then="shop.index", fields={"title": "h1"}) for url in urls).apply_async()
    for page in pages.get(timeout=120):
        print(page["record"])


if __name__ == "__main__":
    main(sys.argv[1:])
