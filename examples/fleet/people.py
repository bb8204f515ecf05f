"""Workers for two types of tasks, with a client that is opened once per process.

shoal worker examples/fleet/people.py        any number, on any machine that reaches the queue
python examples/fleet/ask.py ada grace       gives them work, and waits for the results
"""

import json
import os
from http.client import HTTPConnection
from urllib.parse import urlsplit

import shoal

URL = os.environ.get("SHOAL_DEMO_URL", "http://127.0.0.1:8808/")


class People:
    """A client for the demo site's API, such as a library would provide."""

    def __init__(self, url):
        self.host = urlsplit(url).netloc

    def get(self, path):
        connection = HTTPConnection(self.host, timeout=10)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            if response.status == 404:
                raise shoal.GiveUp("no_such_person", f"{path} is not there")
            if response.status in (429, 503):
                wait = response.headers.get("Retry-After", "5")
                raise shoal.Retry("api.busy", f"answered {response.status}", after=float(wait))
            return json.load(response)
        finally:
            connection.close()


people = shoal.Scraper("people")


@people.open
def login():
    return People(URL)


@people.task("scrape_profile", retries=3, timeout=30)
def profile(task):
    return task.client.get(f"/api/people/{task.payload['username']}")


@people.task("scrape_followers", timeout=60)
def followers(task):
    """Page after page, up to a limit; every follower is a record."""
    username, limit, found, cursor = task.payload["username"], task.payload["limit"], 0, ""
    while found < limit:
        task.progress(f"{found} followers of {username}")
        response = task.client.get(f"/api/people/{username}/followers?limit=10&cursor={cursor}")
        for follower in response["items"][: limit - found]:
            yield {"of": username, "username": follower["username"]}
        found += len(response["items"])
        cursor = response["next_cursor"]
        if not cursor:
            return
