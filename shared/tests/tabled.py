"""What tests look up in blocks: a table's cells by their headings, and all words in one line."""

from __future__ import annotations

from collections.abc import Iterable

from fluxbench.report.blocks import Block, Bullets, Fold, Row, Table


def unfolded(blocks: Iterable[Block]) -> list[Block]:
    """Return all blocks, in place of folds what they hold."""
    inner = (unfolded(block.blocks) if isinstance(block, Fold) else [block] for block in blocks)
    return [block for several in inner for block in several]


def tables_of(blocks: Iterable[Block]) -> list[Table]:
    """Return the tables, those in folds too."""
    return [block for block in unfolded(blocks) if isinstance(block, Table)]


def table_of(blocks: Iterable[Block], caption: str = "") -> Table:
    """Return the one table whose caption has these words."""
    [table] = [table for table in tables_of(blocks) if caption in table.caption]
    return table


def heads(table: Table) -> list[str]:
    """Return the headings, each in one line."""
    return [column.head.replace("\n", " ") for column in table.columns]


def rows_of(table: Table) -> list[tuple[str, ...]]:
    """Return the cells of all rows that are no headings, less the blanks around them."""
    return [tuple(cell.strip() for cell in row.texts()) for row in table.rows if isinstance(row, Row)]


def cells(table: Table, name: str) -> dict[str, str]:
    """Return the first row with a cell of this name, by heading."""
    return next(dict(zip(heads(table), row, strict=True)) for row in rows_of(table) if name in row)


def words(blocks: Iterable[Block]) -> str:
    """Return all that blocks say in one line."""
    return " ".join(" ".join(block.text() for block in blocks).split())


def bullets(blocks: Iterable[Block], title: str) -> list[tuple[str, str]]:
    """Return the items of the one list whose title has these words."""
    [found] = [block for block in unfolded(blocks) if isinstance(block, Bullets) and title in block.title]
    return list(found.items)
