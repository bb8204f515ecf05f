"""Static files of the pages: named by their content, so that browsers may keep them for ever."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.resources import files

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from shoal.web.http.problem import not_found

router = APIRouter(include_in_schema=False)

MEDIA_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
CACHE_FOREVER = "public, max-age=31536000, immutable"


class Asset(msgspec.Struct, frozen=True):
    name: str  # with the hash of its content
    kind: str
    body: bytes
    gzipped: bytes


@cache
def assets() -> dict[str, Asset]:
    """All of them, by their plain names."""
    found: dict[str, Asset] = {}
    for file in files("shoal.web.pages").joinpath("static").iterdir():
        stem, _, ending = file.name.rpartition(".")
        if ending not in MEDIA_TYPES:
            continue
        body = file.read_bytes()
        name = f"{stem}.{hashlib.sha256(body).hexdigest()[:10]}.{ending}"
        found[file.name] = Asset(name, MEDIA_TYPES[ending], body, gzip.compress(body, 9, mtime=0))
    return found


@cache
def _by_hashed_name() -> dict[str, Asset]:
    return {asset.name: asset for asset in assets().values()}


def asset_url(name: str) -> str:
    """The URL of a file, which changes whenever its content does."""
    return f"/static/{assets()[name].name}"


@router.get("/static/{name}")
async def static(request: Request, name: str) -> Response:
    asset = _by_hashed_name().get(name)
    if asset is None:
        raise not_found("file", name)
    headers = {"Cache-Control": CACHE_FOREVER, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.gzipped, 200, headers | {"Content-Encoding": "gzip"}, asset.kind)
    return Response(asset.body, 200, headers, asset.kind)
