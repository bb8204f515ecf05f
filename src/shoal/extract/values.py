"""Values: what the words on a page mean as numbers, prices and truths.

Every reader takes the first thing of its kind in a text and raises ValueError if there is none.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from shoal.extract.dates import date as date
from shoal.extract.dates import datetime as datetime

_SPACE = "[ \u00a0\u2007\u2009\u202f]"
_find_number = re.compile(
    # A minus counts where no word ends before it, also with a currency between: "-$5", but not "SB-5".
    rf"(?P<sign>(?<![\w.,)])[-−+]{_SPACE}?(?:[^\w\s.,+−-]{{1,3}}{_SPACE}?)?)?"
    rf"(?P<digits>\d{{1,3}}(?:{_SPACE}\d{{3}})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,'’]\d+)*|(?<![\w.,])[.,]\d+)"
    r"(?P<power>[eE][+-]?\d{1,3}(?!\w))?"
).search
_strip_group_marks = re.compile(rf"{_SPACE}|['’]").sub
# 1,234,567 or 12,34,567.
_grouped = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d?(?:,\d{2})+,\d{3}").fullmatch
_OTHER_MARKS = str.maketrans("٫٬．，－", ".,.,-")
_TOO_LARGE = 2**63  # nothing that keeps records has larger whole numbers
MAX_CHARS = 1_000  # characters that are looked at: values are short, and pages are not to be trusted

_TRUE = frozenset(("true", "yes", "y", "t", "on", "1", "✓", "✔", "✅"))
_FALSE = frozenset(("false", "no", "n", "f", "off", "0", "✗", "✘", "❌"))

_SYMBOLS = {
    "R$": "BRL", "CA$": "CAD", "C$": "CAD", "AU$": "AUD", "A$": "AUD", "NZ$": "NZD", "HK$": "HKD",
    "S$": "SGD", "US$": "USD", "NT$": "TWD", "MX$": "MXN", "€": "EUR", "£": "GBP", "$": "USD", "¥": "JPY",
    "￥": "JPY", "円": "JPY", "元": "CNY", "₹": "INR", "₽": "RUB", "₩": "KRW", "₪": "ILS", "₺": "TRY",
    "₴": "UAH", "₫": "VND", "฿": "THB", "₦": "NGN", "₱": "PHP", "zł": "PLN", "Kč": "CZK", "Ft": "HUF",
}  # fmt: skip
_CODES = frozenset((
    "AED", "ARS", "AUD", "BGN", "BHD", "BRL", "CAD", "CHF", "CLP", "CNY", "COP", "CZK", "DKK", "EGP", "EUR",
    "GBP", "HKD", "HUF", "IDR", "ILS", "INR", "ISK", "JOD", "JPY", "KES", "KRW", "KWD", "MAD", "MXN", "MYR",
    "NGN", "NOK", "NZD", "OMR", "PEN", "PHP", "PKR", "PLN", "QAR", "RON", "RSD", "RUB", "SAR", "SEK", "SGD",
    "THB", "TND", "TRY", "TWD", "UAH", "USD", "VND", "ZAR",
))  # fmt: skip
_currencies = re.compile(
    "|".join(map(re.escape, sorted(_SYMBOLS, key=len, reverse=True))) + r"|(?<![A-Za-z])[A-Z]{3}(?![A-Za-z])"
).finditer


class Price(NamedTuple):
    """An amount and the ISO code of its currency, which is empty where none is written."""

    amount: float
    currency: str = ""


def text(s: str) -> str:
    """The words with single spaces between them."""
    return " ".join(s.split())


def number(s: str) -> float:
    """The first number: 1,234.56, 1.234,56, 1 234, 1'234, -5, .5 and 1e3 are all understood.

    Where a separator stands alone, "." is a decimal point, and "," parts thousands only if three digits
    follow each: 1.234 is about one, 1,234 more than a thousand.
    """
    return _parse_number(s, point=True)


def integer(s: str) -> int:
    """The first number, which must be whole."""
    found = _find_number(s[:MAX_CHARS].translate(_OTHER_MARKS))
    if found is not None and found["digits"].isdecimal() and not found["power"]:
        whole = int(found["digits"])  # exact, where a float would round
        if whole >= _TOO_LARGE:
            raise ValueError(f"too large a number: {_shown(s)}")
        return -whole if _negative(found) else whole
    value = number(s)
    if not value.is_integer():
        raise ValueError(f"not a whole number: {_shown(s)}")
    if abs(value) >= _TOO_LARGE:
        raise ValueError(f"too large a number: {_shown(s)}")
    return int(value)


def price(s: str) -> Price:
    """The first amount and its currency; three digits after any separator are thousands."""
    return Price(_parse_number(s, point=False), _first_currency(s))


def currency(s: str) -> str:
    """The ISO code of the first currency that is named."""
    code = _first_currency(s)
    if not code:
        raise ValueError(f"no currency in {_shown(s)}")
    return code


def boolean(s: str) -> bool:
    """true, yes, on, 1 and ✓, or their opposites, in any case."""
    word = s.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"neither true nor false: {_shown(s)}")


def _parse_number(s: str, *, point: bool) -> float:
    found = _find_number(s[:MAX_CHARS].translate(_OTHER_MARKS))
    if found is None:
        raise ValueError(f"no number in {_shown(s)}" if s.strip() else "no number: it is empty")
    value = float(_to_python_digits(_strip_group_marks("", found["digits"]), point) + (found["power"] or ""))
    if math.isinf(value):
        raise ValueError(f"too large a number: {_shown(s)}")
    return -value if _negative(found) else value


def _negative(found: re.Match[str]) -> bool:
    return (found["sign"] or "+")[0] in "-−"


def _to_python_digits(digits: str, point: bool) -> str:
    """The digits as Python reads them, with a point or none."""
    dots, commas = digits.count("."), digits.count(",")
    if dots and commas:  # the last one is the decimal separator
        at = max(digits.rfind("."), digits.rfind(","))
        return f"{_whole(digits[:at])}.{digits[at + 1 :]}"
    if dots + commas > 1:
        return _whole(digits)
    # A lone "1.234" is a decimal, but thousands if it is a price.
    if (commas or (dots and not point)) and _grouped(digits.replace(".", ",")):
        return _whole(digits)
    return digits.replace(",", ".")


def _whole(digits: str) -> str:
    if not digits.isdecimal() and not _grouped(digits.replace(".", ",")):
        raise ValueError(f"not a number: {_shown(digits)}")
    return digits.replace(",", "").replace(".", "")


def _first_currency(s: str) -> str:
    for found in _currencies(s[:MAX_CHARS]):
        if found[0] in _SYMBOLS:
            return _SYMBOLS[found[0]]
        if found[0] in _CODES:
            return found[0]
    return ""


def _shown(s: str) -> str:
    return repr(text(s[:60]))
