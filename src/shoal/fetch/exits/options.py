"""ExitOptions: one exit: its proxies, and how they are used in turn; or a tor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shoal.fetch.tor.options import TorOptions

Sticky = Literal["host", "session", "none"]


@dataclass(frozen=True, slots=True, repr=False)
class ExitOptions:
    """Proxies with their logins: it is never shown as a whole."""

    name: str
    proxies: tuple[str, ...] = ()  # none, and no tor: requests leave this machine directly
    sticky: Sticky = "host"  # who keeps a proxy: each host; each session, at all hosts, too; or sessions alone
    failures: int = 3  # in a row, after which a proxy is left alone
    cool_down: float = 30.0  # seconds for which it is, doubled each time
    tor: TorOptions | None = None  # of each process, in place of proxies

    @property
    def is_direct(self) -> bool:
        return not self.proxies and self.tor is None

    def __repr__(self) -> str:
        return f"ExitOptions({self.name!r}, {len(self.proxies)} proxies)"
