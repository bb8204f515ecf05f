from __future__ import annotations

import random

import pytest

from shoal.extract.charset import decode, encoding_of
from shoal.extract.charset_labels import _LABELS, codec_of

HTML = "text/html"


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("UTF-8", "utf-8"),
        (" utf8\n", "utf-8"),
        ("latin1", "cp1252"),
        ("iso-8859-1", "cp1252"),
        ("us-ascii", "cp1252"),
        ("iso-8859-9", "cp1254"),
        ("iso-8859-11", "cp874"),
        ("tis-620", "cp874"),
        ("iso-8859-8-i", "iso8859-8"),
        ("gb2312", "gb18030"),
        ("gbk", "gb18030"),
        ("big5", "big5hkscs"),
        ("shift_jis", "cp932"),
        ("windows-31j", "cp932"),
        ("euc-kr", "cp949"),
        ("ks_c_5601-1987", "cp949"),
        ("x-mac-cyrillic", "mac-cyrillic"),
        ("unicode", "utf-16-le"),
        ("utf-16be", "utf-16-be"),
        ("iso-2022-kr", "replacement"),
        ("hz-gb-2312", "replacement"),
        ("x-user-defined", "x-user-defined"),
        ("utf-7", None),
        ("rot13", None),
        ("idna", None),
        ("utf-32", None),
        ("latin-1", None),
        ("\u00a0utf-8", None),
        ("", None),
    ],
)
def test_labels_mean_what_the_standard_says(label: str, codec: str | None) -> None:
    assert codec_of(label) == codec


def test_no_label_has_two_meanings() -> None:
    labels = [label for labels in _LABELS.values() for label in labels.split()]
    assert len(labels) == len(set(labels)) > 220


@pytest.mark.parametrize(
    ("body", "kind", "codec"),
    [
        # A byte order mark beats everything, Content-Type beats the page, the page beats guessing.
        (b"\xef\xbb\xbf<meta charset=big5>", "text/html; charset=latin1", "utf-8"),
        (b"\xff\xfea\0", "text/html; charset=utf-8", "utf-16-le"),
        (b"\xfe\xff\0a", HTML, "utf-16-be"),
        (b"<meta charset=big5>", "text/html; charset=koi8-r", "koi8-r"),
        (b"<meta charset=big5>", "text/html; charset=nonsense", "big5hkscs"),
        (b"<meta charset=big5>", HTML, "big5hkscs"),
        (b"a\xe9", HTML, "cp1252"),
        ("é".encode(), HTML, "utf-8"),
        (b"", "", "utf-8"),
        # Content-Type, as it is written in the wild.
        (b"", 'text/html;charset="koi8-r"', "koi8-r"),
        (b"", "text/html; Charset = KOI8-R ; x=y", "koi8-r"),
        (b"", "text/html; charset='koi8-r'", "koi8-r"),
        (b"", "text/html; x=charset=koi8-r", "utf-8"),
        # What is declared wrongly stays as declared.
        ("é".encode(), "text/html; charset=latin1", "cp1252"),
        (b"\xe9", "text/html; charset=utf-8", "utf-8"),
        (b"<meta charset=utf-8>\xe9", HTML, "utf-8"),
    ],
)
def test_evidence_counts_in_the_order_of_the_standard(body: bytes, kind: str, codec: str) -> None:
    assert encoding_of(body, kind) == codec


@pytest.mark.parametrize(
    ("head", "codec"),
    [
        (b"<meta charset=koi8-r>", "koi8-r"),
        (b"<META CHARSET = 'KOI8-R' >", "koi8-r"),
        (b'<meta/charset="koi8-r"/>', "koi8-r"),
        (b"<meta name=x charset=koi8-r>", "koi8-r"),
        (b"<metacharset=koi8-r>", None),
        (b"<meta charset=koi8-r", None),  # cut off
        (b"<meta charset='koi8-r>", None),
        (b"<meta charset=''>", None),
        (b"<meta charset=nonsense><meta charset=koi8-r>", "koi8-r"),
        (b"<meta charset=koi8-r charset=big5>", "koi8-r"),
        (b"<meta charset=koi8-r><meta charset=big5>", "koi8-r"),
        # http-equiv and content, in any order, and only together.
        (b'<meta http-equiv=Content-Type content="text/html; charset=koi8-r">', "koi8-r"),
        (b'<meta content="text/html; charset=koi8-r" http-equiv="content-type">', "koi8-r"),
        (b'<meta content="text/html; charset=koi8-r">', None),
        (b'<meta http-equiv=refresh content="0; charset=koi8-r">', None),
        (b"<meta http-equiv=content-type content='charset = \"koi8-r\"'>", "koi8-r"),
        (b"<meta http-equiv=content-type content='charset=\"koi8-r'>", None),
        (b"<meta http-equiv=content-type content='charset charset=koi8-r;x'>", "koi8-r"),
        (b'<meta charset=big5 http-equiv=content-type content="charset=koi8-r">', "big5hkscs"),
        (b'<meta http-equiv=content-type content="charset=koi8-r" charset=big5>', "big5hkscs"),
        # Comments, other tags and what only looks like a tag.
        (b"<!-- <meta charset=big5> --><meta charset=koi8-r>", "koi8-r"),
        (b"<!--><meta charset=koi8-r>", "koi8-r"),
        (b"<!-- <meta charset=koi8-r>", None),
        (b"<!doctype x><meta charset=koi8-r>", "koi8-r"),
        (b"<?x ?><meta charset=koi8-r>", "koi8-r"),
        (b"</x <meta charset=big5>><meta charset=koi8-r>", "koi8-r"),
        (b'<a title="<meta charset=big5>"><meta charset=koi8-r>', "koi8-r"),
        (b"<script>'<meta charset=koi8-r>'</script>", "koi8-r"),  # as the standard says
        (b"a < b <meta charset=koi8-r>", "koi8-r"),
        (b"< meta charset=koi8-r>", None),
        # What cannot be true.
        (b"<meta charset=utf-16>", "utf-8"),
        (b"<meta charset=utf-16be>", "utf-8"),
        (b"<meta charset=x-user-defined>", "cp1252"),
        (b"<meta charset=iso-2022-kr>", "replacement"),
        # XML.
        (b'<?xml version="1.0" encoding="koi8-r"?><a/>', "koi8-r"),
        (b"<?xml version='1.0' encoding = 'koi8-r' ?><a/>", "koi8-r"),
        (b'<?xml version="1.0" encoding="utf-16"?><a/>', "utf-8"),
        (b'<?xml version="1.0" encoding="koi8 r"?><a/>', None),
        (b' <?xml version="1.0" encoding="koi8-r"?>', None),
        (b'<?xml version="1.0" encoding="koi8-r"?><meta charset=big5>', "big5hkscs"),
        ("<?xml?>".encode("utf-16-le"), "utf-16-le"),
        ("<?xml?>".encode("utf-16-be"), "utf-16-be"),
        # Only the beginning counts.
        (b" " * 1_003 + b"<meta charset=koi8-r>", "koi8-r"),
        (b" " * 1_004 + b"<meta charset=koi8-r>", None),
    ],
)
def test_the_beginning_of_a_page_is_scanned_as_the_standard_says(head: bytes, codec: str | None) -> None:
    # The bytes behind it are no UTF-8, so that nothing found is windows-1252.
    assert encoding_of(head + b" " * 1_100 + b"\xe9\xe9", HTML) == (codec or "cp1252")


@pytest.mark.parametrize(
    ("codec", "body", "text"),
    [
        ("cp1252", b"\x80\x81\x9d", "€\x81\x9d"),
        ("cp1253", b"\x81\xaa", "\x81\ufffd"),
        ("cp874", b"\x81\xdb", "\x81\ufffd"),
        ("iso8859-8", b"\xe0\xff", "א\ufffd"),
        ("koi8-u", b"\xae\xbe", "ўЎ"),
        ("mac-cyrillic", b"\xff", "€"),
        ("gb18030", b"\x80a", "€a"),
        ("cp932", b"\x87\x40", "①"),
        ("euc_jp", b"\xad\xa1\xa1\xc1", "①～"),
        ("euc_jp", b"\xff\xa4\xa2", "\ufffdあ"),
        ("iso2022_jp_ext", b'\x1b$B$"\x1b(B!', "あ!"),
        ("big5hkscs", b"\xa4\xa4", "中"),
        ("cp949", b"\xc7\xd1", "한"),
        ("utf-8", b"a\xff\xe2\x82", "a\ufffd\ufffd"),
        ("utf-8", b"\xef\xbb\xbfa", "a"),
        ("utf-16-le", b"\xff\xfea\0b", "a\ufffd"),
        ("utf-16-be", b"\0a", "a"),
        ("replacement", b"<p>anything", "\ufffd"),
        ("replacement", b"", ""),
        ("x-user-defined", b"a\x80\xff", "a\uf780\uf7ff"),
    ],
)
def test_bytes_are_read_as_browsers_read_them(codec: str, body: bytes, text: str) -> None:
    assert decode(body, codec) == text


def test_decoding_never_raises() -> None:
    dice = random.Random(3)
    for codec in _LABELS:
        for _ in range(60):
            assert isinstance(decode(dice.randbytes(dice.randrange(40)), codec), str)


def test_scanning_never_raises_and_always_ends() -> None:
    dice = random.Random(5)
    pieces = [b"<", b"<!--", b"-->", b"<meta ", b"charset", b"=", b'"', b"'", b">", b"/", b" ", b"<?xml", b"\0", b"a"]
    for _ in range(2_000):
        body = b"".join(dice.choice(pieces) for _ in range(dice.randrange(200)))
        assert encoding_of(body, "")
