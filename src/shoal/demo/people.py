"""The readers: profiles, and followers by cursor as HTML and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from html import escape
from typing import Any

from shoal.demo import words
from shoal.demo.layout import link, numbered, page, page_number, pager
from shoal.demo.messages import SiteRequest, SiteResponse, html_response, json_response, redirect_response
from shoal.demo.seeded_random import SeededRandom

PER_PAGE = 20
FOLLOWERS_PER_PAGE = 12
API_LIMIT = 10
API_MAX_LIMIT = 100
HOME = ("/", "Home")
PEOPLE = ("/people/", "Readers")


@dataclass(frozen=True, slots=True)
class Profile:
    index: int
    username: str
    name: str
    trade: str
    place: str
    bio: str
    joined: str
    posts: int
    followers: int

    @property
    def path(self) -> str:
        return f"/people/{self.username}"

    @property
    def followers_path(self) -> str:
        return f"/people/{self.username}/followers"


class BadCursor(ValueError):
    """A cursor that this site did not hand out for this list."""


class People:
    def __init__(self, seed: int, profiles: int) -> None:
        self.seed = seed
        self.count = profiles
        self.profile = lru_cache(maxsize=8192)(self._profile)
        self._index = {self._username(i): i for i in range(profiles)}

    def _names(self, index: int) -> tuple[str, str, int]:
        """First name, last name and round; every pair comes once per round."""
        size = len(words.FIRST)
        turn, at = divmod(index, size * len(words.LAST))
        at = (at + 13 * self.seed) % (size * len(words.LAST))
        return words.FIRST[at % size], words.LAST[(7 * at + at // size) % len(words.LAST)], turn

    def _username(self, index: int) -> str:
        first, last, turn = self._names(index)
        return f"{first}.{last}".lower() + (str(turn + 1) if turn else "")

    def _profile(self, index: int) -> Profile:
        rng = SeededRandom(self.seed, "profile", index)
        first, last, _ = self._names(index)
        trade, place = rng.choice(words.TRADES), rng.choice(words.PLACES)
        return Profile(
            index=index,
            username=self._username(index),
            name=f"{first} {last}",
            trade=trade,
            place=place,
            bio=words.fill(rng, rng.choice(words.SAYINGS)),
            joined=f"{rng.between(2009, 2025)}-{rng.between(1, 12):02}-{rng.between(1, 28):02}",
            posts=rng.between(0, 900),
            followers=self._popularity(index, rng),
        )

    def _popularity(self, index: int, rng: SeededRandom) -> int:
        """Everybody follows the first reader, nobody the last; the others lie between."""
        if index == 0 or self.count == 1:
            return self.count - 1
        return 0 if index == self.count - 1 else rng.between(1, self.count - 1)

    def followers(self, profile: Profile, start: int, limit: int) -> list[Profile]:
        """A slice of the followers: different readers, never the profile itself."""
        others = self.count - 1
        stop = min(start + limit, profile.followers)
        if others < 1:
            return []
        offset = SeededRandom(self.seed, "followers", profile.index).below(others)
        return [self.profile((profile.index + 1 + (offset + at) % others) % self.count) for at in range(start, stop)]

    def cursor(self, scope: str, start: int) -> str:
        """An opaque word for a place in a list, with a check that it is ours."""
        check = blake2b(f"{self.seed}:{scope}:{start}".encode(), digest_size=5).hexdigest()
        return f"{check}{start:x}"

    def seed_tasks(self, scope: str, cursor: str) -> int:
        if not cursor:
            return 0
        try:
            start = int(cursor[10:18], 16)
        except ValueError as error:
            raise BadCursor(cursor) from error
        if self.cursor(scope, start) != cursor:
            raise BadCursor(cursor)
        return start

    def answer(self, request: SiteRequest) -> SiteResponse | None:
        parts = request.parts
        if not parts:
            return redirect_response("/people/", 301)
        if len(parts) == 1 and (number := page_number(parts[0])):
            return self._directory(number)
        profile = self.find(parts[0])
        if profile is None:
            return None
        if len(parts) == 1:
            return html_response(self._page(profile))
        return self._followers_page(profile, request) if parts[1:] == ["followers"] else None

    def find(self, username: str) -> Profile | None:
        index = self._index.get(username)
        return None if index is None else self.profile(index)

    def _directory(self, number: int) -> SiteResponse | None:
        last = max(1, -(-self.count // PER_PAGE))
        if number > last:
            return None
        shown = range(self.count)[(number - 1) * PER_PAGE : number * PER_PAGE]
        main = f"<h1>Readers</h1>\n{_cards([self.profile(i) for i in shown])}\n{pager('/people/', number, last)}"
        return html_response(page("Readers" if number == 1 else f"Readers, page {number}", main, crumbs=[HOME]))

    def _page(self, profile: Profile) -> str:
        near = self.followers(profile, 0, 8)
        rng = SeededRandom(self.seed, "posts", profile.index)
        posts = "\n".join(f'<li class="post">{escape(words.paragraph(rng, 2))}</li>' for _ in range(6))
        api = f"/api/people/{profile.username}"
        main = (
            f'<h1 class="name">{escape(profile.name)}</h1>\n<p class="note">@<span class="username">'
            f'{profile.username}</span> · <span class="trade">{profile.trade}</span> in '
            f'<span class="place">{escape(profile.place)}</span></p>\n<p '
            f'class="bio">{escape(profile.bio)}</p>\n'
            f'<table class="details">\n<tr><th>Followers</th><td '
            f'class="followers">{profile.followers}</td></tr>\n'
            f'<tr><th>Posts</th><td class="posts">{profile.posts}</td></tr>\n'
            f'<tr><th>Joined</th><td class="joined">{profile.joined}</td></tr>\n</table>\n'
            f"<p>{link(profile.followers_path, 'All followers', 'all-followers')} · "
            f"{link(api, 'as JSON')}</p>\n"
            f'<h2>Latest posts</h2>\n<ul class="posts">\n{posts}\n</ul>\n<h2>Some followers'
            f"</h2>\n{_cards(near)}"
        )
        alternate = f'<link rel="alternate" type="application/json" href="{api}">\n'
        return page(profile.name, main, crumbs=[HOME, PEOPLE], head=alternate)

    def _followers_page(self, profile: Profile, request: SiteRequest) -> SiteResponse:
        try:
            start = self.seed_tasks(profile.username, request.query.get("cursor", ""))
        except BadCursor:
            return html_response(page("Unknown cursor", "<h1>Unknown cursor</h1>"), 400)
        shown = self.followers(profile, start, FOLLOWERS_PER_PAGE)
        more = self._next(profile.username, start + FOLLOWERS_PER_PAGE, profile.followers)
        forward = link(f"{profile.followers_path}?cursor={more}", "more followers") if more else ""
        main = (
            f'<h1>Followers of {escape(profile.name)}</h1>\n<p class="note"><span class="count">'
            f"{profile.followers}</span> in all</p>\n{_cards(shown)}\n"
            f'<ul class="pager"><li class="next">{forward}</li></ul>'
        )
        return html_response(page("Followers", main, crumbs=[HOME, PEOPLE, (profile.path, profile.name)]))

    def _next(self, scope: str, start: int, end: int) -> str | None:
        return self.cursor(scope, start) if start < end else None

    def api(self, request: SiteRequest) -> SiteResponse | None:
        """/api/people, /api/people/<name>, /api/people/<name>/followers."""
        parts = request.parts
        if not parts or parts[0] != "people":
            return None
        try:
            limit = min(max(int(request.query.get("limit", API_LIMIT)), 1), API_MAX_LIMIT)
            if parts[1:] in ([], [""]):
                return self._api_list("*", request, limit, None)
            profile = self.find(parts[1])
            if profile is None:
                return json_response({"error": "no such reader"}, 404)
            if len(parts) == 2:
                return json_response(_fields(profile))
            return self._api_list(profile.username, request, limit, profile) if parts[2:] == ["followers"] else None
        except BadCursor:
            return json_response({"error": "unknown cursor"}, 400)
        except ValueError:
            return json_response({"error": "limit must be a number"}, 400)

    def _api_list(self, scope: str, request: SiteRequest, limit: int, profile: Profile | None) -> SiteResponse:
        start = self.seed_tasks(scope, request.query.get("cursor", ""))
        if profile is None:
            total = self.count
            items = [self.profile(i) for i in range(start, min(start + limit, total))]
        else:
            total = profile.followers
            items = self.followers(profile, start, limit)
        return json_response(
            {
                "total": total,
                "items": [_fields(item) for item in items],
                "next_cursor": self._next(scope, start + limit, total),
            }
        )

    def paths(self) -> Iterator[str]:
        """Every directory page, profile, JSON profile and page of followers that links lead to."""
        for number in range(1, max(1, -(-self.count // PER_PAGE)) + 1):
            yield numbered("/people/", number)
        for index in range(self.count):
            profile = self.profile(index)
            yield profile.path
            yield f"/api/people/{profile.username}"
            yield profile.followers_path
            for start in range(FOLLOWERS_PER_PAGE, profile.followers, FOLLOWERS_PER_PAGE):
                yield f"{profile.followers_path}?cursor={self.cursor(profile.username, start)}"


def _fields(profile: Profile) -> dict[str, Any]:
    return {
        "username": profile.username,
        "name": profile.name,
        "trade": profile.trade,
        "place": profile.place,
        "bio": profile.bio,
        "joined": profile.joined,
        "posts": profile.posts,
        "followers": profile.followers,
    }


def _cards(profiles: list[Profile]) -> str:
    items = "\n".join(
        f'<li class="person">{link(p.path, p.name)} <span class="username">{p.username}</span></li>' for p in profiles
    )
    return f'<ul class="grid">\n{items}\n</ul>'
