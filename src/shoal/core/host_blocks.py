"""HostBlocks: what the fleet knows of a host's usual pages, and of those that it gives in their place. Pure.

A good page costs a few comparisons. Only one that is odd is looked at closely, and one sign alone never makes it a
block: it must speak against the page that it gives less than usual, is built otherwise, asks for something or was
redirected, and it must come for several URLs. When pages become odd one after the other and each in its own way,
the site was made anew: then what is usual is learned again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from shoal.core.block_page import MAX_LOOKS, MAX_SIGHTINGS, BlockPage, Sighting, merged_pages
from shoal.core.fetch_shape import ALL, MAX_SHAPE, fetch_shape, finest_shape
from shoal.core.page_print import PASSWORD, REFRESH, PageLook, text_hash
from shoal.core.usual_page import ASKS, HOLLOW, LED_AWAY, MAX_COUNT, POOR, STRANGE_BUILD, PageSeen, Usual

MAX_USUAL = 60  # shapes of one host, over all who read its pages
MAX_BLOCK_PAGES = 16
MAX_WAYS = 16
MAX_READER = 130
MAX_DOCUMENT = 200_000  # letters; a longer one is not read
HALF_FILLED, FEW_LINKS = 0.5, 5  # of a page of an unknown host
MIN_EMPTY = 3  # URLs of an unknown host with one empty page, before the next is asked for again
GRAVE_SIGNS = 3
LATELY = 32  # pages of a way of which it is known how they were
UNDER_WAY = 1  # seconds: a page that comes so soon after another was asked for before it
NEW_SITE = 5  # pages in a row that are odd, each in its own way
ANY_READER = ("", ALL)  # the pages of the host as a whole

Verdict = Literal["good", "odd", "block"]
ShapeKey = tuple[str, str]
Way = tuple[str, str]  # fetcher and exit
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
SIGN_WORDS = (
    (POOR, "gives less than such pages usually do"),
    (HOLLOW, "leaves most fields empty"),
    (STRANGE_BUILD, "is built unlike them"),
    (ASKS, "asks for something that they do not ask for"),
    (LED_AWAY, "is where redirects lead"),
)


class KnownUsual(msgspec.Struct):
    reader: Annotated[str, msgspec.Meta(max_length=MAX_READER)]
    shape: Annotated[str, msgspec.Meta(max_length=MAX_SHAPE)]
    usual: Usual


class WayCount(msgspec.Struct):
    """How many pages came by one fetcher and one exit, and how many were blocks."""

    fetcher: Annotated[str, msgspec.Meta(max_length=40)]
    exit: Annotated[str, msgspec.Meta(max_length=40)]
    pages: _Count = 0
    blocked: _Count = 0
    last_at: _Count = 0  # the last block, in seconds

    @property
    def share(self) -> float:
        return self.blocked / self.pages if self.pages else 0.0


class BlockDocument(msgspec.Struct):
    """As it is stored; whoever can write to the queue can write this."""

    usual: Annotated[list[KnownUsual], msgspec.Meta(max_length=MAX_USUAL)] = []
    pages: Annotated[list[BlockPage], msgspec.Meta(max_length=MAX_BLOCK_PAGES)] = []
    ways: Annotated[list[WayCount], msgspec.Meta(max_length=MAX_WAYS)] = []


class Judgement(msgspec.Struct, frozen=True):
    verdict: Verdict
    signs: int = 0
    page: BlockPage | None = None  # what it was recognised as
    is_news: bool = False  # the fleet should know at once


GOOD = Judgement("good")
_decode = msgspec.json.Decoder(BlockDocument).decode


def read_document(text: str) -> BlockDocument:
    if len(text) > MAX_DOCUMENT:
        return BlockDocument()
    try:
        return _decode(text)
    except msgspec.MsgspecError:
        return BlockDocument()


class HostBlocks:
    """What one process knows of one host."""

    def __init__(self, document: BlockDocument | None = None) -> None:
        self.usual: dict[ShapeKey, Usual] = {}
        self.pages: list[BlockPage] = []
        self.ways: dict[Way, WayCount] = {}
        self.streaks: dict[Way, int] = {}  # blocks in a row
        self._lately: dict[Way, deque[tuple[int, bool]]] = {}  # when pages came, and whether they were fine
        self._odd: dict[ShapeKey, list[tuple[PageSeen, PageLook]]] = {}  # in a row, each unlike the others
        self._shapes: dict[str, set[str]] = {}
        self._fresh: dict[Way, WayCount] = {}  # counts that the queue does not have yet
        self._sent: dict[Way, WayCount] = {}  # those of them that are on their way
        if document is not None:
            self.adopt(document)

    @property
    def has_usual(self) -> bool:
        """Whether there is anything to compare pages of the host with."""
        usual = self.usual.get(ANY_READER)
        return usual is not None and usual.is_known

    def key(self, reader: str, url: str) -> ShapeKey:
        key = (reader, finest_shape(url))
        if key in self.usual:
            return key
        return (reader, fetch_shape(url, self._shapes.get(reader, ())))

    def judge(
        self,
        reader: str,
        url: str,
        seen: PageSeen,
        way: Way,
        look_at: Callable[[], PageLook],
        now: int,
        *,
        is_taken: bool = False,
    ) -> Judgement:
        """A page that was fetched. now: in seconds. is_taken: it counts, whatever it is."""
        found = self._judge(reader, url, seen, way, look_at, now)
        self._count(way).pages += 1
        if found.verdict != "good":
            self._note(way, now, is_good=False)
            for one in self.pages:
                if found.page is not None and one.id == found.page.id:
                    one.leaked += is_taken
                    one.pages += found.verdict == "block" and not is_taken
        return found

    def _judge(
        self, reader: str, url: str, seen: PageSeen, way: Way, look_at: Callable[[], PageLook], now: int
    ) -> Judgement:
        key = self.key(reader, url)
        usual = self.usual.get(key)
        if usual is not None and usual.is_ordinary(seen):
            self._learn(key, usual, seen, look_at() if usual.wants_sample else None)
            return self._good(seen.url, way, now)
        look = look_at()
        if not look.pieces and seen.size > 0:
            return GOOD  # nothing of it can be compared
        base, of_reader = self._baseline(key)
        signs = base.signs(seen, look, of_reader=of_reader) if base is not None else _signs_alone(seen, look)
        if base is None:
            known = next((one for one in self.pages if one.is_identical(seen, look)), None)
        else:
            titled = base.has_titles
            known = next((one for one in self.pages if one.is_same(seen, look, signs, has_titles=titled)), None)
        if known is None:
            return self._judge_new(key, seen, look, signs, base, way, url, now)
        return self._judge_known(key, known, seen, look, signs, base, way, now)

    def _judge_known(
        self,
        key: ShapeKey,
        known: BlockPage,
        seen: PageSeen,
        look: PageLook,
        signs: int,
        base: Usual | None,
        way: Way,
        now: int,
    ) -> Judgement:
        """It has come before, for this URL or another."""
        if known.status() == "content":
            return self._good(seen.url, way, now)
        if not signs:  # it gives what such pages give
            return self._taken(key, seen, look, way, now)
        before = known.status()
        sighting = known.sighting(seen.url)
        is_new = is_again = False
        if sighting is not None:
            sighting.looks = min(sighting.looks + 1, 1000)
            is_again = self._were_others_fine(way, sighting.at)
            is_new = is_again and not sighting.again
            sighting.again = sighting.again or is_again
        elif len(known.sightings) < MAX_SIGHTINGS:
            known.sightings.append(Sighting(seen.url, now))
            is_new = True
        is_new = is_new or signs | known.signs != known.signs
        known.signs |= signs
        known.asks |= look.asks
        known.is_compared = known.is_compared or base is not None
        known.last_at = now
        status = known.status()
        if status == "content":
            return Judgement("good", signs, known, is_news=True)
        # Of the last pages of a run nothing else comes to compare with.
        is_all = sighting is not None and sighting.looks > MAX_LOOKS and not is_again
        is_sure = (
            (is_again or is_all) and base is not None and (_is_grave(signs) or (is_all and len(known.sightings) > 1))
        )
        if status == "block" or is_sure:
            count = self._count(way)
            count.blocked, count.last_at = count.blocked + 1, now
            self.streaks[way] = self.streaks.get(way, 0) + 1
            return Judgement("block", signs, known, is_news=is_new or before != status)
        is_enough = base is not None or known.signs & ASKS or len(known.sightings) >= MIN_EMPTY
        if is_enough and (sighting is None or not (is_again or is_all)):
            return Judgement("odd", signs, known, is_news=is_new)
        known.leaked += sighting is None
        return Judgement("good", signs, known, is_news=is_new)

    def _judge_new(
        self,
        key: ShapeKey,
        seen: PageSeen,
        look: PageLook,
        signs: int,
        base: Usual | None,
        way: Way,
        url: str,
        now: int,
    ) -> Judgement:
        looks = sum(one.looks for page in self.pages for one in page.sightings if one.url == seen.url)
        # A wall may look otherwise each time.
        is_undecided = not looks or (_is_grave(signs) and looks <= MAX_LOOKS)
        is_odd = base is not None and signs.bit_count() >= 2 and is_undecided
        if is_odd and self._is_new_site(key, seen, look):
            return GOOD
        if not signs:
            return self._taken(key, seen, look, way, now)
        page = BlockPage(
            id=text_hash(f"{seen.title} {seen.landed} {look.sketch}"),
            title=seen.title,
            landed=seen.landed,
            sketch=look.sketch,
            signs=signs,
            asks=look.asks,
            size=seen.size,
            example=url[:300],
            is_compared=base is not None,
            first_at=now,
            last_at=now,
            leaked=0 if is_odd else 1,
            sightings=[Sighting(seen.url, now)],
        )
        self.pages = merged_pages(self.pages, [page], MAX_BLOCK_PAGES)
        if is_odd:
            return Judgement("odd", signs, page, is_news=True)
        return self._taken(key, seen, look, way, now, but=page.id)

    def _is_new_site(self, key: ShapeKey, seen: PageSeen, look: PageLook) -> bool:
        """Whether so many pages in a row were odd, each in its own way, that this is how they are now."""
        odd = self._odd.setdefault(key, [])
        odd.append((seen, look))
        if len(odd) < NEW_SITE:
            return False
        del self._odd[key]
        gone = {one.url for one, _ in odd}
        self.pages = [
            one
            for one in self.pages
            if one.status() != "seen" or len(one.sightings) > 1 or one.sightings[0].url not in gone
        ]
        for which in (key, ANY_READER):
            before = self.usual.get(which, Usual())
            usual = self._put(which, Usual(epoch=before.epoch + 1))
            for one, how in odd:
                usual.learn(one, how)
        return True

    def _baseline(self, key: ShapeKey) -> tuple[Usual | None, bool]:
        """What the page is compared with: pages of its shape, else of its host."""
        usual = self.usual.get(key)
        if usual is not None and usual.is_known:
            return usual, True
        usual = self.usual.get(ANY_READER)
        return (usual, False) if usual is not None and usual.is_known else (None, False)

    def _taken(
        self, key: ShapeKey, seen: PageSeen, look: PageLook, way: Way, now: int, *, but: int | None = None
    ) -> Judgement:
        self._learn(key, self.usual.get(key), seen, look)
        return self._good(seen.url, way, now, but=but)

    def _learn(self, key: ShapeKey, usual: Usual | None, seen: PageSeen, look: PageLook | None) -> None:
        if seen.is_failed:
            return
        if usual is None:
            usual = self._put(key, Usual())
        usual.learn(seen, look)
        if self._odd:
            self._odd.pop(key, None)
        if look is not None:
            whole = self.usual.get(ANY_READER)
            (self._put(ANY_READER, Usual()) if whole is None else whole).learn(seen, look)

    def _put(self, key: ShapeKey, usual: Usual) -> Usual:
        if key not in self.usual and len(self.usual) >= MAX_USUAL:
            least = min((one for one in self.usual if one != ANY_READER), key=lambda one: self.usual[one].pages)
            del self.usual[least]
            self._shapes[least[0]].discard(least[1])
        self.usual[key] = usual
        self._shapes.setdefault(key[0], set()).add(key[1])
        return usual

    def _good(self, url: int, way: Way, now: int, *, but: int | None = None) -> Judgement:
        """but: what it was remembered as, for it has one sign."""
        self.streaks.pop(way, None)
        self._note(way, now, is_good=True)
        is_news = False
        for one in self.pages:
            sighting = one.sighting(url)
            if sighting is not None and not sighting.gone and one.id != but and one.status() != "content":
                sighting.gone = is_news = True
        return Judgement("good", is_news=is_news) if is_news else GOOD

    def _note(self, way: Way, now: int, *, is_good: bool) -> None:
        self._lately.setdefault(way, deque(maxlen=LATELY)).append((now, is_good))

    def _were_others_fine(self, way: Way, since: int) -> bool:
        """Not by pages alone that were under way when a wall came up."""
        seen = [is_good for at, is_good in self._lately.get(way, ()) if at > since + UNDER_WAY]
        return sum(seen) > 0 and 2 * sum(seen) >= len(seen) - sum(seen)

    def _count(self, way: Way) -> WayCount:
        found = self._fresh.get(way)
        if found is None:
            found = self._fresh[way] = WayCount(*way)
        return found

    # What is shared.

    def added_to(self, stored: BlockDocument) -> BlockDocument:
        """What is stored together with what this process has learned since it was last shared."""
        usual = {(one.reader, one.shape): one.usual for one in stored.usual}
        for key, own in self.usual.items():
            other = usual.get(key)
            if other is None or (own.epoch, own.pages) >= (other.epoch, other.pages):
                usual[key] = own
        most = sorted(usual.items(), key=lambda item: item[1].pages)[-MAX_USUAL:]
        ways = {(one.fetcher, one.exit): one for one in stored.ways}
        self._sent = {way: msgspec.structs.replace(fresh) for way, fresh in self._fresh.items()}
        for way, fresh in self._sent.items():
            known = ways.get(way, WayCount(*way))
            ways[way] = WayCount(
                *way, known.pages + fresh.pages, known.blocked + fresh.blocked, max(known.last_at, fresh.last_at)
            )
        return BlockDocument(
            [KnownUsual(*key, one) for key, one in most],
            merged_pages(stored.pages, self.pages, MAX_BLOCK_PAGES),
            sorted(ways.values(), key=lambda one: one.pages)[-MAX_WAYS:],
        )

    def adopt(self, document: BlockDocument, *, is_saved: bool = False) -> None:
        """Go on from what all know together. is_saved: with all that this process knew when it was last added to it."""
        if is_saved:
            for way, sent in self._sent.items():
                fresh = self._fresh[way]
                fresh.pages, fresh.blocked = fresh.pages - sent.pages, fresh.blocked - sent.blocked
        for one in document.usual:
            key = (one.reader, one.shape)
            own = self.usual.get(key)
            if own is None or (own.epoch, own.pages) < (one.usual.epoch, one.usual.pages):
                self._put(key, one.usual)
        self.pages = merged_pages(document.pages, self.pages, MAX_BLOCK_PAGES)
        self.ways = {(one.fetcher, one.exit): one for one in document.ways}


def _is_grave(signs: int) -> bool:
    """So many at once that asking twice is enough: it asks for something, and is otherwise not such a page."""
    return bool(signs & ASKS) and signs.bit_count() >= GRAVE_SIGNS


def _signs_alone(seen: PageSeen, look: PageLook) -> int:
    """What speaks against a page where nothing usual is known."""
    is_empty = not seen.links and (seen.is_failed or not seen.records or seen.filled <= HALF_FILLED)
    asks = look.asks if look.anchors < FEW_LINKS or look.asks & (PASSWORD | REFRESH) else 0
    return (POOR if is_empty else 0) | (ASKS if asks else 0) | (LED_AWAY if seen.landed else 0)
