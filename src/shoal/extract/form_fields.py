"""Form fields: the controls of a form, and which of them a browser would send as they stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from selectolax.lexbor import LexborHTMLParser, LexborNode

_CONTROLS = ("input", "select", "textarea", "button")
_BUTTON_TYPES = ("submit", "image")
_NO_FIELDS = (*_BUTTON_TYPES, "button", "reset", "file")


@dataclass(frozen=True, slots=True)
class FormField:
    name: str
    type: str
    value: str
    is_sent: bool = True  # False: a box that is not checked, an option that is not selected


@dataclass(frozen=True, slots=True)
class FormButton:
    name: str
    value: str
    text: str
    is_image: bool = False
    overrides: dict[str, str] = field(default_factory=dict)  # action, method, enctype of its own

    @property
    def pairs(self) -> list[tuple[str, str]]:
        if self.is_image:
            dot = f"{self.name}." if self.name else ""
            return [(f"{dot}x", "0"), (f"{dot}y", "0")]
        return [(self.name, self.value)] if self.name else []


def form_fields(html: LexborHTMLParser, form: LexborNode) -> tuple[FormField, ...]:
    return tuple(found for node in _controls(html, form) for found in _fields_of(node))


def form_buttons(html: LexborHTMLParser, form: LexborNode) -> tuple[FormButton, ...]:
    return tuple(_button(node) for node in _controls(html, form) if _is_button(node))


def _controls(html: LexborHTMLParser, form: LexborNode) -> Iterator[LexborNode]:
    """The controls that belong to a form, in the order of the page: those inside it, and those that name it."""
    own_id = form.attrs.sget("id")
    for node in html.css(", ".join(_CONTROLS)):
        owner = node.attrs.sget("form")
        is_own = owner == own_id if owner else _is_inside(node, form)
        if is_own and not _is_disabled(node):
            yield node


def _is_inside(node: LexborNode, form: LexborNode) -> bool:
    above = node.parent
    while above is not None:
        if above.tag == "form":
            return above.mem_id == form.mem_id
        above = above.parent
    return False


def _is_disabled(node: LexborNode) -> bool:
    if "disabled" in node.attrs:
        return True
    below, above = node, node.parent
    while above is not None and above.tag != "form":
        if above.tag == "datalist":
            return True
        if above.tag == "fieldset" and "disabled" in above.attrs and not _is_first_legend(above, below):
            return True
        below, above = above, above.parent
    return False


def _is_first_legend(fieldset: LexborNode, child: LexborNode) -> bool:
    """What stands in the legend of a disabled fieldset can still be used."""
    legend = next((node for node in fieldset.iter() if node.tag == "legend"), None)
    return legend is not None and legend.mem_id == child.mem_id


def _fields_of(node: LexborNode) -> Iterator[FormField]:
    name = node.attrs.sget("name")
    if not name:
        return
    if node.tag == "select":
        yield from _options(name, node)
    elif node.tag == "textarea":
        yield FormField(name, "textarea", node.text(deep=True).removeprefix("\n"))
    elif node.tag == "input" and (kind := _type(node)) not in _NO_FIELDS:
        is_box = kind in ("checkbox", "radio")
        value = node.attrs.sget("value", "on" if is_box else "") if "value" in node.attrs or is_box else ""
        yield FormField(name, kind, value, not is_box or "checked" in node.attrs)


def _options(name: str, select: LexborNode) -> Iterator[FormField]:
    """What is selected; of a list that always shows one, the first if none is."""
    options = [node for node in select.css("option") if "disabled" not in node.attrs]
    chosen = [node for node in options if "selected" in node.attrs]
    if "multiple" not in select.attrs:
        chosen = chosen[-1:] or options[:1]
    yield from (FormField(name, "select", _option_value(node)) for node in chosen)
    if not chosen:
        yield FormField(name, "select", "", is_sent=False)


def _option_value(node: LexborNode) -> str:
    if "value" in node.attrs:
        return node.attrs.sget("value")
    return " ".join(node.text(deep=True).split())


def _is_button(node: LexborNode) -> bool:
    if node.tag == "button":
        return _type(node, "submit") == "submit"
    return node.tag == "input" and _type(node) in _BUTTON_TYPES


def _button(node: LexborNode) -> FormButton:
    text = " ".join(node.text(deep=True).split()) if node.tag == "button" else node.attrs.sget("value")
    own = {
        name: node.attrs.sget(f"form{name}") for name in ("action", "method", "enctype") if f"form{name}" in node.attrs
    }
    return FormButton(node.attrs.sget("name"), node.attrs.sget("value"), text, _type(node) == "image", own)


def _type(node: LexborNode, default: str = "text") -> str:
    return node.attrs.sget("type").strip().lower() or default
