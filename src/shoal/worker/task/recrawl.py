"""Recrawl: a page that is as it was in the run before gives the same links and records, and is not parsed again."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shoal.core.page import Request, Response
from shoal.core.page_memory import (
    GONE_CAUSES,
    Change,
    PageHead,
    content_hash,
    is_known_unchanged,
    is_same_content,
    meta_without_lastmod,
    pack_body,
    pack_head,
    rules_hash,
    unpack_body,
    validator,
)
from shoal.core.request_header import names_identity
from shoal.core.run import Run
from shoal.core.run_counters import count_page_change
from shoal.core.task import LeasedTask, Outcome, digest
from shoal.core.task_kind import BUILT_IN_PREFIX, PAGE
from shoal.core.url import request_digest
from shoal.extract.page import Follow
from shoal.queue.base import MAX_PAGE_STATE_BYTES, PageState, Queue
from shoal.worker.page_states import MAX_AHEAD, PageStateBuffer, PageStateReader
from shoal.worker.task.handler_output import HandlerOutput

_CONDITIONAL_HEADERS = frozenset(
    ("if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "range")
)
_UNCHANGED = count_page_change("unchanged")
_NOT_MODIFIED = count_page_change("unchanged", "not_modified")
_NOT_ASKED = count_page_change("unchanged", "not_asked")


class PageOutput(msgspec.Struct, frozen=True, array_like=True):
    """What a handler yielded of a page."""

    records: list[bytes] = []
    follows: list[Follow] = []


_decode_output = msgspec.msgpack.Decoder(PageOutput).decode


class FormerPage(msgspec.Struct, frozen=True):
    """A page as the run before had it."""

    head: PageHead
    body: bytes
    output: PageOutput | None  # None: it cannot stand for the page, which has to be parsed
    validators: tuple[tuple[str, str], ...] = ()  # headers that ask for the page only if it has changed


class Recrawl:
    """What one worker knows of the pages of a run and of the run before it."""

    def __init__(
        self,
        queue: Queue,
        run: Run,
        buffer: PageStateBuffer,
        *,
        rules: tuple[object, ...] | None,
        personal: bool,
        sends_validators: bool = True,
    ) -> None:
        """rules: what links and records depend on beside the page; None: that is not known, so nothing is reused.

        personal: all pages are asked for with a login. sends_validators: not where a page must come whole.
        """
        self._reader = PageStateReader(queue, run)
        self._buffer = buffer
        self._rules = rules
        self._rules_without_meta = rules_hash((rules, None))
        self._digests: dict[int, bytes] = {}  # of tasks that were read ahead
        self._personal = personal
        self._sends_validators = sends_validators

    async def read_ahead(self, tasks: Iterable[LeasedTask]) -> None:
        """What is known of the pages of tasks that have just been claimed."""
        if len(self._digests) > MAX_AHEAD:
            self._digests.clear()  # of tasks that were given back
        digests = {task.id: page_digest(task) for task in tasks if is_compared(task)}
        self._digests |= digests
        await self._reader.read_ahead(list(digests.values()))

    async def recall(self, task: LeasedTask) -> FormerPage | None:
        """The page of a task as it was; None: it is new, or not one that is compared."""
        digest = self._digests.pop(task.id, b"")
        if not digest:
            if not is_compared(task):
                return None
            digest = page_digest(task)
        found = await self._reader.find(digest)
        if found is None:
            return None
        head, body = found
        may_reuse = self._rules is not None and head.reusable and head.rules == self._rules_of(task)
        output = unpack_body(body, _decode_output) if may_reuse else None
        return FormerPage(head, body, output, head.validators if output is not None else ())

    def with_validators(self, request: Request, former: FormerPage) -> Request:
        """The request, answered with the page only if that has changed."""
        if not self._sends_validators or request.url != former.head.url or not former.validators:
            return request
        return msgspec.structs.replace(request, headers=request.headers + former.validators)

    def is_unchanged(self, task: LeasedTask, former: FormerPage, response: Response | None) -> bool:
        """Whether a page gives what it gave before: by its site's word (no response), its server's, or its content."""
        if former.output is None:
            return False
        if response is None:
            return is_known_unchanged(former.head, task.meta)
        if response.status == 304:
            return self._sends_validators and response.url == former.head.url and bool(former.validators)
        return response.status == 200 and is_same_content(former.head, response.url, content_hash(response.body))

    def remember_unchanged(
        self, task: LeasedTask, former: FormerPage, at: int, response: Response | None
    ) -> dict[str, int]:
        """Save what was known as what is known now; says what to count."""
        head = former.head
        if response is None:
            self._save(task, msgspec.structs.replace(head, change="unchanged"), former.body)
            return _NOT_ASKED
        etag, modified = _validators(response, head.etag)
        now = msgspec.structs.replace(
            head,
            change="unchanged",
            fetched_at=at,
            etag=etag or head.etag,
            last_modified=modified or head.last_modified,
        )
        self._save(task, now, former.body)
        return _NOT_MODIFIED if response.status == 304 else _UNCHANGED

    def remember(
        self,
        task: LeasedTask,
        former: FormerPage | None,
        at: int,
        response: Response,
        output: HandlerOutput,
        *,
        reusable: bool,
    ) -> dict[str, int]:
        """Save a page that was parsed; says what to count."""
        if response.status != 200 or not is_compared(task):
            return {}
        content, given = content_hash(response.body), PageOutput(output.records, output.follows)
        change = _change(former, content, given)
        body = _packed(given)
        etag, modified = _validators(response)
        head = PageHead(
            digest=page_digest(task),
            task_url=task.url,
            url=response.url,
            rules=self._rules_of(task),
            content=content,
            fetched_at=at,
            change=change,
            etag=etag,
            last_modified=modified,
            reusable=reusable and bool(body) and self._rules is not None,
            personal=self._personal or _is_personal(task),
        )
        self._save(task, head, body)
        return count_page_change(change)

    def remember_failed(self, task: LeasedTask, former: FormerPage, outcome: Outcome) -> None:
        """A page that could not be fetched this time is not forgotten, unless it is not there any more."""
        if outcome.result == "dead" and outcome.cause not in GONE_CAUSES:
            self._save(task, msgspec.structs.replace(former.head, change="failed"), former.body)

    def _rules_of(self, task: LeasedTask) -> bytes:
        meta = meta_without_lastmod(task.meta)
        return self._rules_without_meta if meta is None else rules_hash((self._rules, meta))

    def _save(self, task: LeasedTask, head: PageHead, body: bytes) -> None:
        packed = pack_head(head)
        if len(packed) + len(body) > MAX_PAGE_STATE_BYTES:
            packed, body = pack_head(msgspec.structs.replace(head, reusable=False)), b""
        if len(packed) <= MAX_PAGE_STATE_BYTES:
            self._buffer.put(PageState(task.id, packed, body))


def is_compared(task: LeasedTask) -> bool:
    """Whether a task is a page that can be the same in another run."""
    options = task.request_options
    if task.kind.startswith(BUILT_IN_PREFIX):
        return False
    return options is None or not (
        options.method.upper() != "GET"
        or options.body
        or options.again
        or any(name.lower() in _CONDITIONAL_HEADERS for name, _ in options.headers)
    )


def page_digest(task: LeasedTask) -> bytes:
    """The digest that a task was added with, see shoal.extract.links."""
    request = request_digest(task.url, task.request_options)
    return request if task.kind == PAGE else digest(f"{task.kind}  {request.hex()}")


def restored(former: FormerPage) -> HandlerOutput:
    """What the handler had yielded of the page, to be judged anew."""
    output = HandlerOutput()
    if former.output is not None:
        output.records = former.output.records
        output.follows = former.output.follows
    output.links = sum(len(follow.hrefs) for follow in output.follows)
    return output


def _change(former: FormerPage | None, content: bytes, given: PageOutput) -> Change:
    if former is None:
        return "new"
    if former.head.content == content:
        return "unchanged"
    # Pages often differ in what nobody looks for: a date, a token of a form.
    known = former.output or unpack_body(former.body, _decode_output)
    return "unchanged" if known == given else "changed"


def _packed(given: PageOutput) -> bytes:
    """Empty for what cannot be packed: such a page is parsed every time."""
    try:
        return pack_body(given)
    except (TypeError, ValueError, OverflowError):
        return b""


def _validators(response: Response, known: str = "") -> tuple[str, str]:
    """The ETag and the date, as far as they can be sent back; known: an ETag that can."""
    etag, modified = response.header("etag"), response.header("last-modified")
    if modified:
        modified, vary = validator(modified), response.header("vary").lower()
        if "*" in vary or "cookie" in vary:  # the same date may be that of what others get
            modified = ""
    return etag if etag == known else validator(etag), modified


def _is_personal(task: LeasedTask) -> bool:
    options = task.request_options
    return options is not None and bool(
        options.session or options.auth or any(names_identity(name) for name, _ in options.headers)
    )
