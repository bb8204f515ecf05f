"""Form encoding: the body of a form that is posted, in the three ways that HTML knows."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from urllib.parse import urlencode

FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")

Pairs = Sequence[tuple[str, str]]


def encode_form(pairs: Pairs, enctype: str, encoding: str) -> tuple[bytes, str]:
    """The body and its content type; line ends are as browsers send them."""
    pairs = [(_line_ends(name), _line_ends(value)) for name, value in pairs]
    if enctype == "multipart/form-data":
        return _multipart(pairs, encoding)
    if enctype == "text/plain":
        return _encode("".join(f"{name}={value}\r\n" for name, value in pairs), encoding), enctype
    return urlencode(pairs, encoding=encoding, errors="xmlcharrefreplace").encode(), enctype


def _multipart(pairs: Pairs, encoding: str) -> tuple[bytes, str]:
    # From what is sent: the same form is the same request, so that it is sent once.
    boundary = f"----shoal{sha256(repr(pairs).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    parts = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(name)}"\r\n\r\n{value}\r\n'
        for name, value in pairs
    )
    return _encode(f"{parts}--{boundary}--\r\n", encoding), f"multipart/form-data; boundary={boundary}"


def _line_ends(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")


def _quoted(name: str) -> str:
    return name.replace("\r\n", "%0D%0A").replace('"', "%22")


def _encode(text: str, encoding: str) -> bytes:
    return text.encode(encoding, "xmlcharrefreplace")
