"""Table: the rows of an HTML table as dicts, with spans filled in and headers found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from selectolax.lexbor import LexborNode

from shoal.errors import GiveUp
from shoal.extract.selection import visible_words

Header = int | Sequence[str] | Literal["column"] | None

MAX_CELLS = 500_000  # a single cell may claim 65 million by its spans
_GROUPS = ("thead", "tbody", "tfoot")


@dataclass(slots=True)
class TableRow:
    """One line of the grid; a cell that spans several columns or rows stands in each of them."""

    texts: list[str] = field(default_factory=list)
    headers: list[bool] = field(default_factory=list)  # which cells are th
    in_head: bool = False

    @property
    def all_headers(self) -> bool:
        return bool(self.headers) and all(self.headers)


def table_records(table: LexborNode, header: Header = None) -> list[dict[str, str]]:
    """One dict per row, in the order of the table.

    header: the number of header rows, the names themselves, or "column" if each column is a record; without
    it, th and thead tell.
    """
    rows = grid(table)
    if not rows:
        return []
    if header is None:
        count = _header_rows(rows)
        header = "column" if not count and all(row.headers[0] for row in rows) else count
    if isinstance(header, str):
        rows, header = _transposed(rows), 1
    width = max(len(row.texts) for row in rows)
    if width * len(rows) > MAX_CELLS:
        raise _too_large()
    if isinstance(header, int):
        names, rows = _names([row.texts for row in rows[:header]], width), rows[header:]
    else:
        names = _names([list(header)], width)
    return [dict(zip(names, row.texts + [""] * (width - len(row.texts)), strict=True)) for row in rows]


def grid(table: LexborNode) -> list[TableRow]:
    """The rows of a table itself, not of tables in it; rows without cells are left out."""
    rows: list[TableRow] = []
    cells = 0
    for group, lines in _groups(table):
        spanning: dict[int, tuple[int, str, bool]] = {}  # column -> rows still to fill, text, th
        for line in lines:
            row = _row(line, spanning, MAX_CELLS - cells)
            row.in_head = group == "thead"
            cells += len(row.texts)
            if row.texts:
                rows.append(row)
    return rows


def _groups(table: LexborNode) -> Iterator[tuple[str, list[LexborNode]]]:
    loose: list[LexborNode] = []
    later: list[tuple[str, list[LexborNode]]] = []
    for child in table.iter():
        if child.tag == "tr":
            loose.append(child)
        elif child.tag in _GROUPS:
            group = (child.tag, [row for row in child.iter() if row.tag == "tr"])
            if child.tag == "thead":
                yield group
            else:
                later.append(group)
    if loose:
        yield "", loose
    yield from sorted(later, key=lambda group: group[0] == "tfoot")


def _row(line: LexborNode, spanning: dict[int, tuple[int, str, bool]], max_cells: int) -> TableRow:
    row = TableRow()

    def fill(until: int | None) -> None:
        """Put down what hangs into this row from above, up to the next free column."""
        while (at := len(row.texts)) in spanning or (until is not None and at < until):
            left, text, is_header = spanning.pop(at, (0, "", False))
            if left > 1:
                spanning[at] = (left - 1, text, is_header)
            row.texts.append(text)
            row.headers.append(is_header)

    for cell in line.iter():
        if cell.tag not in ("td", "th"):
            continue
        fill(None)
        text, is_header = " ".join(visible_words(cell)), cell.tag == "th"
        down = _span(cell, "rowspan", 65_534)
        for _ in range(_span(cell, "colspan", 1_000) or 1):
            if len(row.texts) >= max_cells:
                raise _too_large()
            if down != 1:
                spanning[len(row.texts)] = (down - 1 if down else 65_534, text, is_header)
            row.texts.append(text)
            row.headers.append(is_header)
    if spanning:
        fill(max(spanning) + 1)
    return row


def _too_large() -> GiveUp:
    return GiveUp("too_complex", f"a table has more than {MAX_CELLS:,} cells")


def _span(cell: LexborNode, name: str, max_cells: int) -> int:
    """What a span says, read as browsers do; 0 means up to the end."""
    value = (cell.attributes.get(name) or "").strip()
    digits = value[: len(value) - len(value.lstrip("0123456789"))][:6]
    return min(int(digits), max_cells) if digits else 1


def _header_rows(rows: list[TableRow]) -> int:
    in_head = sum(row.in_head for row in rows)
    if in_head:
        return in_head
    count = next((at for at, row in enumerate(rows) if not row.all_headers), len(rows))
    return count if count < len(rows) else min(1, count)


def _transposed(rows: list[TableRow]) -> list[TableRow]:
    width = max(len(row.texts) for row in rows)
    if width * len(rows) > MAX_CELLS:
        raise _too_large()
    return [TableRow([row.texts[at] if at < len(row.texts) else "" for row in rows]) for at in range(width)]


def _names(lines: list[list[str]], width: int) -> list[str]:
    """One name per column: header rows joined, numbers where there is none, and no name twice."""
    names: dict[str, None] = {}
    used: Counter[str] = Counter()
    for at in range(width):
        parts = [line[at] for line in lines if at < len(line) and line[at]]
        words = [part for no, part in enumerate(parts) if no == 0 or parts[no - 1] != part]
        name = plain = " ".join(words) or str(at + 1)
        while name in names:
            used[plain] += 1
            name = f"{plain} {used[plain] + 1}"
        names[name] = None
    return list(names)
