"""The check of this machine's browser: whether pages can be fetched by one, and how well it is locked up."""

from __future__ import annotations

from shoal.config.load import Settings
from shoal.core.capability import BROWSER
from shoal.core.fetch_choice import AUTO
from shoal.fetch.browser.program import INSTALL_HINT, find_program, is_remote, missing_reason, sandbox_problem
from shoal.queue.base import Finding


def browser_finding(settings: Settings) -> Finding:
    is_promised = BROWSER in settings.has or settings.fetch == BROWSER
    if why := missing_reason(settings.browser):
        words = f"no pages by a browser: {why}"
        if settings.fetch == AUTO and not is_promised:
            return Finding(BROWSER, "warning", f"{words}; with fetch=auto all pages are fetched by HTTP", INSTALL_HINT)
        return Finding(BROWSER, "wrong", words, INSTALL_HINT) if is_promised else Finding(BROWSER, "ok", words)
    if is_remote(settings.browser):
        words = f"browser at {settings.browser}: no address guard and no limit of bytes holds for what it loads"
        return Finding(BROWSER, "warning", words, "use a browser of this machine, or keep that one in a closed network")
    words = f"browser: {find_program(settings.browser)}"
    if unsafe := sandbox_problem():
        words = f"{words}, without its sandbox: {unsafe}"
        fix = "run workers with browsers as another user than root"
        return Finding(BROWSER, "warning", words, fix) if is_promised else Finding(BROWSER, "ok", words)
    return Finding(BROWSER, "ok", f"{words}, in its sandbox")
