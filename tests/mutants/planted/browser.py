"""Planted changes of pages by a browser, and of the gateway before it."""

from __future__ import annotations

from mutants.mutant import Mutant

_GATEWAY = "acceptance/test_gateway.py"
_VISITS = "acceptance/test_fetch_browser.py::test_what_is_asked_for_is_what_is_said"

MUTANTS = (
    Mutant(
        "what a dying browser still makes stays",
        "fetch/folder_watch.py",
        "if late or not Path(folder).exists():",
        "if True:",
        "unit/test_folder_watch.py",
    ),
    Mutant(
        "the gateway connects to any address",
        "fetch/gateway/exit.py",
        "if not self._refusal(host, ip, port)]",
        "]",
        _GATEWAY,
    ),
    Mutant(
        "the gateway resolves a name twice",
        "fetch/gateway/exit.py",
        "return await asyncio.open_connection(ip, port)",
        "return await asyncio.open_connection(host, port)",
        _GATEWAY,
    ),
    Mutant(
        "the gateway answers to everybody on the machine",
        "fetch/gateway/port.py",
        "self._max_bytes and self._is_ours(writer)",
        "self._max_bytes",
        _GATEWAY,
    ),
    Mutant(
        "a second request goes to the first one's server",
        "fetch/gateway/port.py",
        "        await reader.read(1)  # ends when the browser has gone, or asks for something else\n",
        "        await self._copy(reader, server, host)\n",
        _GATEWAY,
    ),
    Mutant(
        "bytes are counted, and nothing follows from it",
        "fetch/gateway/port.py",
        "        if self.is_exceeded:\n            self._cut_off()\n",
        "",
        _GATEWAY,
    ),
    Mutant(
        "between pages the port is open",
        "fetch/gateway/port.py",
        "        self._max_bytes = 0\n        self._cut_off()\n",
        "        self._cut_off()\n",
        _GATEWAY,
    ),
    Mutant(
        "redirects and scripts go wherever they like",
        "fetch/browser/visit.py",
        "found = await self._request.navigate(self._last_url)",
        "return Request(self._last_url)",
        _VISITS,
    ),
    Mutant(
        "a step that cannot be taken is left out",
        "fetch/browser/step_runner.py",
        "            raise StepFailed(BROWSER, words) from error\n",
        "            continue\n",
        _VISITS,
    ),
    Mutant(
        "a task for a browser needs none",
        "core/routes.py",
        "needs = capability_names({*task.needs, BROWSER})",
        "needs = task.needs",
        "unit/test_fetch_choice.py",
    ),
    Mutant(
        "a handler's word does not count",
        "app.py",
        "scraper.fetch_of(url, kind) or settings.fetch",
        "settings.fetch",
        "unit/test_fetch_choice.py",
    ),
    Mutant(
        "steps make no other task of a page",
        "core/url.py",
        "options.session or options.auth or steps)",
        "options.session or options.auth)",
        "unit/test_fetch_choice.py",
    ),
    Mutant(
        "what a browser's processes have grown by is not added",
        "fetch/browser/memory_gauge.py",
        "bound += before.share + max(0, now.private - before.seen.private)",
        "bound += before.share",
        "unit/test_memory_gauge.py",
    ),
    Mutant(
        "a page that goes elsewhere while it is read fails",
        "fetch/browser/tab.py",
        '_LEAVING = ("context", "navigated")',
        '_LEAVING = ("context",)',
        "acceptance/test_fetch_browser.py::test_page_that_goes_elsewhere_while_it_is_read_is_read_where_it_went",
    ),
    Mutant(
        "the headers are of the document before, and the text is of this one",
        "fetch/browser/visit.py",
        "while self._events.document not in (document, None):",
        "while document is None:",
        "acceptance/test_fetch_browser.py::test_page_that_goes_elsewhere_while_it_is_read_is_read_where_it_went",
    ),
    Mutant(
        "where a step may not go, an error page comes in place of the page",
        "fetch/browser/visit.py",
        "await tab.stay(event)",
        "await tab.refuse(event)",
        "acceptance/test_fetch_browser.py::test_page_stays_where_it_was_when_a_step_is_refused_and_fails_where_nothing_comes",
    ),
    Mutant(
        "a tab is closed while its page waits for a slot",
        "worker/task/browser_visit.py",
        "    attempt.may_leave = False\n",
        "",
        "acceptance/test_browser_crawl.py::test_pages_whose_slot_goes_by_while_a_tab_is_opened_are_fetched_in_another",
    ),
    Mutant(
        "captures of a machine without a server are kept for ever",
        "commands/run.py",
        "        await remove_some_kept_documents(queue, IN_FILE if self._settings.state_file else ELSEWHERE)\n",
        "",
        "acceptance/test_old_captures.py",
    ),
    Mutant(
        "a capture that is too big is not spoken of",
        "queue/captures.py",
        'capture = Capture(capture.media_type, b"", too_big=len(capture.data))',
        "return False",
        "unit/test_kept_documents.py",
    ),
    Mutant(
        "a selector that is none is tried again on every page",
        "fetch/browser/step_runner.py",
        "if any(said in str(error) for said in _IMPOSSIBLE):",
        "if False:",
        "acceptance/test_fetch_browser.py::test_a_step_that_can_be_taken_on_no_page_is_not_tried_again",
    ),
    Mutant(
        "steps that nobody takes are not spoken of",
        "launch/request_options.py",
        "if not settings.steps or settings.fetch != HTTP or _rules_name_browser(settings):",
        "if True:",
        "unit/test_steps_without_browser.py",
    ),
    Mutant(
        "how often something is clicked at most is lost on the way",
        "core/browser_step.py",
        'if self.times != DEFAULT_TIMES else ""',
        'if self.times != DEFAULT_TIMES and not self.until else ""',
        "unit/test_browser_step.py",
    ),
    Mutant(
        "a connection that was closed is root's",
        "files/peer_user.py",
        "return int(uid) if inode else NOBODY",
        "return int(uid)",
        "unit/test_peer_user.py",
    ),
    Mutant(
        "pages that wait for a browser are fetched by it whatever is learned meanwhile",
        "worker/task/auto_visit.py",
        "self._attempt.wants_browser = self._still_needs_browser",
        "pass",
        "unit/test_auto_visit.py",
    ),
)
