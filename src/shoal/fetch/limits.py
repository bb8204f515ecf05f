"""FetchLimits: how much, how long and how slow one exchange may be. Named like the settings."""

from __future__ import annotations

import msgspec


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    connect_timeout: float = 10.0  # name, connection and TLS together
    first_byte_timeout: float = 20.0  # from the request until the last header of its answer
    min_speed: int = 100  # bytes of body per second; 0 is no limit
    slow_for: float = 15.0  # seconds that an answer may be slower than that
    max_body: int = 32_000_000  # as decoded
    max_download: int = 32_000_000  # as it comes over the wire
    max_ratio: int = 200  # decoded to downloaded, once there is a megabyte of it
    max_headers: int = 256_000  # over all header blocks of an exchange, trailers too
    max_header_count: int = 500
    max_informational: int = 10
