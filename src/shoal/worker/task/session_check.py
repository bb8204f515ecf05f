"""Session check: whether a page was answered to somebody who is logged in."""

from __future__ import annotations

from shoal.core.glob import Glob
from shoal.core.page import Response
from shoal.core.session_options import LoggedInCheck, SessionOptions
from shoal.core.url import path_of
from shoal.extract.form import Form
from shoal.extract.page import Page


def logged_out_reason(session: SessionOptions, response: Response) -> str:
    """What shows that nobody is logged in; "" if nothing does. Only its own hosts can tell."""
    check = session.check
    if check.redirect:
        pattern = Glob(check.redirect)
        for url in (*response.redirects[1:], response.url):
            if session.covers(url) and (pattern.fullmatch(url) or pattern.fullmatch(path_of(url))):
                return f"it led to {path_of(url)[:100]}"
    if not session.covers(response.url):
        return ""
    if response.status in check.status:
        return f"the server answered {response.status}"
    return _selector_reason(check, response)


def login_problem(session: SessionOptions, response: Response) -> str:
    """The same of the answer to a login, which may be a bad one for other reasons, too."""
    if reason := logged_out_reason(session, response):
        return reason
    if response.status >= 400:
        return f"the server answered {response.status}"
    if session.login.kind == "form" and (form := password_form(Page(response), "")) is not None:
        return f"the page after it asks for a password again ({form.request({}, '', {})[0][:100]})"
    return ""


def password_form(page: Page, selector: str) -> Form | None:
    """The form of a selector, or else the first that asks for a password."""
    if not page.is_html:
        return None
    if selector:
        return page.form(selector) if page.css(selector) else None
    for node in page.html.css("form"):
        form = Form(page, node, {})
        if form.has_password:
            return form
    return None


def _selector_reason(check: LoggedInCheck, response: Response) -> str:
    if not (check.present or check.absent) or not 200 <= response.status < 300:
        return ""
    page = Page(response)
    if not page.is_html:
        return ""
    if check.absent and page.css(check.absent):
        return f"the page has {check.absent}"
    if check.present and not page.css(check.present):
        return f"the page has no {check.present}"
    return ""
