"""Profiles and their followers from a JSON API with cursors, up to a limit for each profile.

shoal run examples/profiles.py -o profiles.jsonl --allow-private
"""

import os

import shoal

URL = os.environ.get("SHOAL_DEMO_URL", "http://127.0.0.1:8808/")
MAX_FOLLOWERS = 25

profiles = shoal.Scraper("profiles", start=URL.rstrip("/") + "/api/people?limit=20")


@profiles.page("/api/people/*/followers")
def followers(page):
    response, username, found = page.json(), page.meta["username"], page.meta["found"]
    for follower in response["items"][: MAX_FOLLOWERS - found]:
        yield {"kind": "follower", "of": username, "username": follower["username"]}
    found += len(response["items"])
    if response["next_cursor"] and found < MAX_FOLLOWERS:
        url = f"/api/people/{username}/followers?limit=10&cursor={response['next_cursor']}"
        yield from page.follow(url, meta={"username": username, "found": found})


@profiles.page("/api/people")
def directory(page):
    response = page.json()
    for person in response["items"]:
        yield {"kind": "profile", **person}
        url = f"/api/people/{person['username']}/followers?limit=10"
        yield from page.follow(url, meta={"username": person["username"], "found": 0})
    if response["next_cursor"]:  # before the followers, so that all profiles are known early
        yield from page.follow(f"/api/people?limit=20&cursor={response['next_cursor']}", priority=1)
