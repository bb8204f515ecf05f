"""One page in many encodings; p#escaped repeats p#text in plain ASCII, so a reader can check itself."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.demo.messages import SiteResponse, html_response

_WEST = "Déjà vu: naïve façade, 25 € at the Übermut café, œuvre “à la carte”."
_LATIN = "Où est la bibliothèque? Année 1999, señor Ångström, größer."
_JAPAN = "吾輩の店は本屋である。値段は九百八十円、ポイント二倍。"
_RUSSIA = "Книжный магазин у моря: новая книга стоит пятьсот рублей."
_CHINA = "海边的小书店：新书五十元，旧书十元。"
_MIXED = "Café · Книга · 本屋 · 书店 · כריכה · 📚"


@dataclass(frozen=True, slots=True)
class Variant:
    text: str
    codec: str
    header: str = ""  # charset in Content-Type; empty is none
    meta: str = ""  # charset in a meta element; empty is none
    mark: bytes = b""  # byte order mark


VARIANTS: dict[str, Variant] = {
    "utf-8": Variant(_MIXED, "utf-8", "utf-8", "utf-8"),
    "utf-8-bom": Variant(_MIXED, "utf-8", mark=b"\xef\xbb\xbf"),
    "windows-1252": Variant(_WEST, "cp1252", "windows-1252"),
    "iso-8859-1": Variant(_LATIN, "latin-1", "iso-8859-1"),
    "shift_jis": Variant(_JAPAN, "shift_jis", "Shift_JIS"),
    "koi8-r": Variant(_RUSSIA, "koi8-r", "koi8-r"),
    "gb18030": Variant(_CHINA, "gb18030", "gb18030"),
    "utf-16le": Variant(_MIXED, "utf-16-le", "utf-16le"),
    "utf-16le-bom": Variant(_MIXED, "utf-16-le", mark=b"\xff\xfe"),
    "meta-only": Variant(_RUSSIA, "koi8-r", meta="koi8-r"),
    "header-wins": Variant(_RUSSIA, "utf-8", "utf-8", "koi8-r"),  # the meta element is wrong
    "bom-wins": Variant(_MIXED, "utf-8", "iso-8859-1", mark=b"\xef\xbb\xbf"),  # the header is wrong
    "wrong-declared": Variant(_WEST, "cp1252", "utf-8"),  # says UTF-8, is not even valid UTF-8
    "unknown-label": Variant(_MIXED, "utf-8", "x-no-such-charset", "utf-8"),
    "undeclared": Variant(_MIXED, "utf-8"),
}


def encoded(name: str) -> SiteResponse | None:
    variant = VARIANTS.get(name)
    if variant is None:
        return None
    meta = f'<meta charset="{variant.meta}">' if variant.meta else ""
    escaped = "".join(f"&#{ord(c)};" if ord(c) > 126 else c for c in variant.text)
    document = (
        f"<!DOCTYPE html>\n<html>\n<head>{meta}<title>{name}: {variant.text}</title></head>\n<body>\n"
        f'<h1>{name}</h1>\n<p id="text">{variant.text}</p>\n<p id="escaped">{escaped}</p>\n'
        '<p><a href="/odd/">back</a></p>\n</body>\n</html>\n'
    )
    kind = f"text/html; charset={variant.header}" if variant.header else "text/html"
    return html_response(variant.mark + document.encode(variant.codec), kind=kind)
