"""Profiles and their followers from a JSON interface with cursors, up to a limit for each profile.

shoal run examples/profiles.py -o profiles.jsonl --allow-private
"""

import os

import shoal

URL = os.environ.get("SHOAL_DEMO_URL", "http://127.0.0.1:8808/")
MOST_FOLLOWERS = 25

profiles = shoal.Scraper("profiles", start=URL.rstrip("/") + "/api/people?limit=20")


@profiles.page("/api/people/*/followers")
def followers(page):
    answer, username, found = page.json(), page.meta["username"], page.meta["found"]
    for follower in answer["items"][: MOST_FOLLOWERS - found]:
        yield {"kind": "follower", "of": username, "username": follower["username"]}
    found += len(answer["items"])
    if answer["next_cursor"] and found < MOST_FOLLOWERS:
        address = f"/api/people/{username}/followers?limit=10&cursor={answer['next_cursor']}"
        yield from page.follow(address, meta={"username": username, "found": found})


@profiles.page("/api/people")
def directory(page):
    answer = page.json()
    for person in answer["items"]:
        yield {"kind": "profile", **person}
        address = f"/api/people/{person['username']}/followers?limit=10"
        yield from page.follow(address, meta={"username": person["username"], "found": 0})
    if answer["next_cursor"]:  # before the followers, so that all profiles are known early
        yield from page.follow(f"/api/people?limit=20&cursor={answer['next_cursor']}", priority=1)
