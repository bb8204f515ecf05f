"""Files: what a site serves besides pages."""

from __future__ import annotations

import struct
import zlib

from shoal.demo.messages import SiteResponse, html_response
from shoal.demo.shop import Shop

MAX_ROWS = 1000


def file(path: str, shop: Shop) -> SiteResponse | None:
    match path:
        case "/empty":
            return html_response("")
        case "/binary.pdf":
            return html_response(pdf(), kind="application/pdf")
        case "/image.png":
            return html_response(png(), kind="image/png")
        case "/download.csv":
            saved = ("content-disposition", 'attachment; filename="books.csv"')
            return SiteResponse(200, (("content-type", "text/csv; charset=utf-8"), saved), csv(shop).encode())
    return None


def csv(shop: Shop) -> str:
    rows = ["number,title,price"]
    for number in range(1, min(shop.count, MAX_ROWS) + 1):
        product = shop.product(number)
        rows.append(f'{number},"{product.title}",{product.cents / 100:.2f}')
    return "\r\n".join(rows) + "\r\n"


def png() -> bytes:
    """A small striped picture."""
    inks = (bytes((11, 110, 117)), bytes((251, 250, 247)))
    rows = b"".join(b"\0" + b"".join(inks[(x + y) // 8 % 2] for x in range(64)) for y in range(64))

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    size = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", size) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


def pdf() -> bytes:
    """The smallest document that a reader opens: one page, one line."""
    stream = b"BT /F1 24 Tf 72 720 Td (Shoal Books: price list) Tj ET"
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    out, places = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return out + (
        b"xref\n0 %d\n0000000000 65535 f \n%btrailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
        % (len(objects) + 1, table, len(objects) + 1, len(out))
    )
