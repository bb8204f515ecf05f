"""Form: what a browser would send for a form of a page, with values of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from selectolax.lexbor import LexborNode, SelectolaxError

from shoal.errors import UsageError
from shoal.extract.charset_labels import REPLACEMENT, USER_DEFINED, codec_of
from shoal.extract.form_encoding import FORM_TYPES, encode_form
from shoal.extract.form_fields import FormButton, FormField, form_buttons, form_fields

if TYPE_CHECKING:
    from shoal.extract.page import Follow, Page

MAX_SHOWN = 12  # names in a message


class Form:
    """A form as it stands on the page; `submit` gives what a handler yields, `fetch` the answer itself."""

    def __init__(self, page: Page, node: LexborNode, options: Mapping[str, Any]) -> None:
        self._page = page
        self._node = node
        self._options = dict(options)
        self.fields: tuple[FormField, ...] = form_fields(page.html, node)
        self.buttons: tuple[FormButton, ...] = form_buttons(page.html, node)

    @property
    def values(self) -> dict[str, list[str]]:
        """What would be sent as it stands, by name; without buttons."""
        found: dict[str, list[str]] = {}
        for field in self.fields:
            if field.is_sent:
                found.setdefault(field.name, []).append(field.value)
        return found

    def submit(
        self, values: Mapping[str, Any] | None = None, /, *, button: str | None = None, **fields: Any
    ) -> tuple[Follow, ...]:
        """The request that sends the form, to be yielded.

        fields: values in place of those on the page: text, True or False for a checkbox, a list for several, None
        for none. values: the same for any name, also one that the form does not have. button: the one to press, by
        name, value or text; else the first, and "" presses none.
        """
        url, more = self.request(values or {}, button, fields)
        return self._page.follow([url], **more | self._options)

    async def fetch(
        self, values: Mapping[str, Any] | None = None, /, *, button: str | None = None, **fields: Any
    ) -> Page:
        """Send the form from inside a handler and give back the answer, as page.fetch does."""
        url, more = self.request(values or {}, button, fields)
        return await self._page.fetch(url, **more | self._options)

    def request(
        self, values: Mapping[str, Any], button: str | None, fields: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """The URL and the options of the request that sends it, as page.fetch takes them."""
        pressed = self._button(button)
        pairs = [*self._filled({**values, **self._checked(fields)}), *(pressed.pairs if pressed else ())]
        action, method, enctype = self._attributes(pressed)
        url = self._page.absolute(action) if action else self._page.url
        if url is None:
            raise UsageError(f"the form leads to {action!r}, which is not a URL", hint="Send it with page.fetch(…).")
        self._refuse_downgrade(url)
        encoding = self._encoding
        if method != "post":
            query = urlencode(pairs, encoding=encoding, errors="xmlcharrefreplace")
            return f"{url.partition('#')[0].partition('?')[0]}?{query}", {}
        body, content_type = encode_form(pairs, enctype, encoding)
        return url, {"method": "POST", "headers": {"Content-Type": content_type}, "body": body}

    def _attributes(self, pressed: FormButton | None) -> tuple[str, str, str]:
        """Action, method and encoding; a button may have its own."""
        own = pressed.overrides if pressed else {}
        action = own.get("action", self._node.attrs.sget("action"))
        method = own.get("method", self._node.attrs.sget("method")).lower()
        enctype = own.get("enctype", self._node.attrs.sget("enctype")).lower()
        return action.strip(), method, enctype if enctype in FORM_TYPES else FORM_TYPES[0]

    def _checked(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        names = dict.fromkeys(field.name for field in self.fields)
        unknown = [name for name in fields if name not in names]
        if unknown:
            have = ", ".join(list(names)[:MAX_SHOWN]) or "none"
            raise UsageError(
                f"the form has no field {unknown[0]!r}; it has: {have}",
                hint=f"Check the name, or send it anyway: submit({{{unknown[0]!r}: …}}).",
            )
        return fields

    def _filled(self, values: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Names and values in the order of the page, then what the form does not have."""
        pairs: list[tuple[str, str]] = []
        left = dict(values)
        for field in self.fields:
            if field.name not in values:
                pairs += [(field.name, field.value)] if field.is_sent else []
            elif isinstance(values[field.name], bool):
                left.pop(field.name, None)
                pairs += [(field.name, field.value)] if values[field.name] else []
            elif field.name in left:
                pairs += [(field.name, text) for text in _texts(left.pop(field.name))]
        return pairs + [(name, text) for name, value in left.items() for text in _texts(value)]

    def _button(self, wanted: str | None) -> FormButton | None:
        if wanted is None:
            return self.buttons[0] if self.buttons else None
        if not wanted:
            return None
        for button in self.buttons:
            if wanted in (button.name, button.value, button.text):
                return button
        have = ", ".join(repr(button.text or button.name) for button in self.buttons[:MAX_SHOWN]) or "none"
        raise UsageError(f"the form has no button {wanted!r}; it has: {have}", hint="Name one of these, or none.")

    def _refuse_downgrade(self, url: str) -> None:
        if not url.startswith("https:") and self._page.url.startswith("https:") and self.has_password:
            raise UsageError(
                f"the form would send a password unencrypted, to {url}",
                hint="Send it with page.fetch(…) if it must be.",
            )

    @property
    def _encoding(self) -> str:
        """As the form says, else that of the page; UTF-8 where no form can be sent in it."""
        asked = self._node.attrs.sget("accept-charset").split()
        codec = codec_of(asked[0]) if asked else self._page.encoding
        return "utf-8" if codec in (None, REPLACEMENT, USER_DEFINED) or codec.startswith("utf-16") else codec

    @property
    def has_password(self) -> bool:
        """Whether it asks for one."""
        return any(field.type == "password" for field in self.fields)

    def __repr__(self) -> str:
        names = dict.fromkeys(field.name for field in self.fields)
        return f"<Form of {self._page.url}: {', '.join(names) or 'no fields'}>"


def find_form(page: Page, what: str, options: Mapping[str, Any]) -> Form:
    forms = page.html.tags("form")
    for node in forms:
        if what and what in (node.attrs.sget("name"), node.attrs.sget("id")):
            return Form(page, node, options)
    try:
        found: LexborNode | None = page.html.css_first(what)
    except SelectolaxError:
        page.css(what)  # which says what is wrong with it
        raise
    while found is not None and found.tag != "form":
        found = found.parent
    if found is not None:
        return Form(page, found, options)
    names = [node.attrs.sget("name") or node.attrs.sget("id") or node.attrs.sget("action") for node in forms]
    have = ", ".join(repr(name) for name in names[:MAX_SHOWN]) if names else "no form at all"
    raise UsageError(
        f"{page.url} has no form {what!r}; it has: {have}",
        hint='Use page.form("NAME"), by its name or id, or a selector such as page.form("form.search").',
    )


def _texts(value: Any) -> list[str]:
    """What is sent for a value: nothing for None and False, each of several."""
    if value is None or value is False:
        return []
    if value is True:
        return ["on"]
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [str(one) for one in value]
    return [str(value)]
