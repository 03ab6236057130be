"""Parsers: each turns lines of tool output into readings. All are tolerant: a text they do not know gives nothing.

`steps` reads lines of one step, `tables` reads tables, `reports` reads `label: value` lines, `documents` reads JSON and
Python literals. `read_all` asks each for the lines that none before it took.
"""

from collections.abc import Sequence

from optimizer.analyze.parsers.documents import read_documents
from optimizer.analyze.parsers.reports import read_reports
from optimizer.analyze.parsers.steps import read_steps
from optimizer.analyze.parsers.tables import TableMemory, read_tables
from optimizer.analyze.readings import Reading


def read_all(lines: Sequence[str], memory: TableMemory | None = None) -> list[Reading]:
    """All readings of a text, in order of their rows. `memory` knows the headers of tables shown before."""
    memory = memory if memory is not None else TableMemory()
    found: list[Reading] = []
    taken: set[int] = set()
    for parser in (read_documents, read_steps):
        readings, rows = parser(lines, taken)
        found += readings
        taken |= rows
    readings, rows = read_tables(lines, taken, memory)
    found += readings
    taken |= rows
    readings, _ = read_reports(lines, taken)
    found += readings
    return sorted(found, key=lambda one: one.row)


__all__ = ["TableMemory", "read_all"]
