"""PageBlocked: what was fetched is not the page that was asked for, although its status says so."""

from __future__ import annotations

from shoal.core.block_page import BLOCK_PAGE


class PageBlocked(Exception):
    """Nothing of the page counts. is_odd: not decided yet; is_final: to ask again is no use."""

    cause = BLOCK_PAGE

    def __init__(self, message: str, *, is_odd: bool = False, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_odd = is_odd
        self.is_final = is_final
