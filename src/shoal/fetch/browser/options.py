"""BrowserOptions: what one fetcher's browsers are started with, and what their pages may take."""

from __future__ import annotations

from typing import Literal

import msgspec

Resource = Literal["images", "media", "fonts"]
RESOURCES: tuple[Resource, ...] = ("images", "media", "fonts")


class BrowserOptions(msgspec.Struct, frozen=True, kw_only=True):
    browser: str = ""  # a program, or the DevTools endpoint of a browser elsewhere; "": what this machine has
    user_agent: str = ""
    ca_file: str = ""  # certificates that sites may be vouched for by, beside those that it knows
    pages: int = 4  # at once, in this process
    load: tuple[Resource, ...] = ()  # what is loaded beside documents, styles, scripts and data
    memory: int = 1_000_000_000  # bytes of a browser with all of its processes
    page_bytes: int = 50_000_000  # over the wire, for one page with all that it loads
    max_body: int = 32_000_000  # of the page itself, as it is when it is read
    timeout: float = 60.0  # seconds for a page, its steps included
    retire_pages: int = 100  # after which a browser is replaced
    retire_age: float = 1_800.0  # seconds likewise


# All but what the gateway lets through leads nowhere: no names are resolved here, nothing goes by UDP.
_NETWORK_FLAGS = (
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--dns-prefetch-disable",
    "--no-pings",
    "--disable-domain-reliability",
    "--disable-background-networking",
    "--disable-component-update",
)
_PAGE_FLAGS = (
    "--block-new-web-contents",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--mute-audio",
    "--autoplay-policy=document-user-activation-required",
    "--js-flags=--max-old-space-size=512",
)


def launch_flags(options: BrowserOptions) -> list[str]:
    blink = [
        *(() if "images" in options.load else ("imagesEnabled=false",)),
        *(() if "fonts" in options.load else ("downloadableBinaryFontsEnabled=false",)),
    ]
    return [*_NETWORK_FLAGS, *_PAGE_FLAGS, *([f"--blink-settings={','.join(blink)}"] if blink else [])]
