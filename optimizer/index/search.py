"""Searching recorded events: newest first, page by page, each call once however many sources saw it.

What is asked is composed of fixed SQL and bound values; no text of a query is ever read as a language. A piece of text
that no recorded word begins with is looked for inside of words, in the whole text of every event, which takes longer.
A text is not looked for in recorded searches, which would only find themselves; asked for by tool, they are there.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.index.build import TrajectoryIndex
from optimizer.index.query import MAX_LIMIT, Place, Query, SearchError, place_of
from optimizer.index.schema import IndexUnavailable, explain, is_broken
from optimizer.index.text import Piece, pieces_of
from optimizer.layers import Layer

SNIPPET = 200
"""Characters of recorded text shown of a hit."""

SEARCH_BUSY_S = 1.0
"""How long a search waits for its turn to bring the index up to date; then it answers from what is there."""

_SEARCH_TOOL = "search_trajectories"

_UNSPACED_FROM = "\u0e00"


@dataclass(frozen=True)
class Other:
    """Another event that is the same call."""

    session: str
    line: int
    source: str


@dataclass(frozen=True)
class Hit:
    """An event that was found. All texts are recorded ones: data from anywhere."""

    session: str
    line: int
    time: float | None
    kind: str
    agent: str
    tool: str | None
    outcome: str
    source: str
    skill: str | None
    layer: str
    run_id: str | None
    snippet: str
    also: tuple[Other, ...]
    """The same call, as other sources saw it."""


@dataclass(frozen=True)
class Page:
    """A page of hits."""

    hits: list[Hit]
    total: int
    """Calls and other events that fit, over all pages."""
    merged: int
    """Events that fit and are the same call as one of them."""
    cursor: str | None
    """For the next page; None: this is the last one."""
    notices: list[str]
    inside_words: bool
    """No word begins with what was asked for; these hits have it inside a word."""


def search(
    index: TrajectoryIndex,
    query: Query,
    *,
    limit: int = 20,
    cursor: str | None = None,
    reader: Layer | str | None = None,
    snippet: int = SNIPPET,
) -> Page:
    """Brings the index up to date and returns a page of what fits.

    `reader`: the optimiser that asks; it sees the layer below its own and nothing else. Raises SearchError, LayerError,
    IndexUnavailable.
    """
    if not 1 <= limit <= MAX_LIMIT:
        raise SearchError(f"limit {limit} is not allowed: 1 to {MAX_LIMIT}")
    query = query.read_by(reader).checked()
    after = place_of(cursor, query)
    notices: list[str] = []
    try:
        notices += index.refresh(busy_s=SEARCH_BUSY_S).notices
    except IndexUnavailable as error:
        if not index.path.exists():
            raise
        notices.append(f"{error}; these are the events taken in before")
    try:
        return _page(index, query, limit, after, snippet, notices)
    except sqlite3.DatabaseError as error:
        if not is_broken(error):
            raise explain(error, index.path) from error
        notices.append(index.give_up(error))
        index.refresh()
        return _page(index, query, limit, after, snippet, notices)


def _page(
    index: TrajectoryIndex, query: Query, limit: int, after: Place | None, snippet: int, notices: list[str]
) -> Page:
    pieces = pieces_of(query.text or "")
    with index.reading() as connection:
        connection.create_function("holds", 2, _holds, deterministic=True)
        inside = frozenset(piece for piece in pieces if _begins_nowhere(connection, piece))
        found, total, merged = _matches(connection, query, pieces, limit, after, inside)
        between = frozenset(piece for piece in pieces if not piece.decided)
        if total == 0 and between - inside:  # `a.b` in `xa.b`: both words are there, but not where the text is
            inside |= between
            found, total, merged = _matches(connection, query, pieces, limit, after, inside)
        hits = [_hit(connection, row, pieces, snippet) for row in found[:limit]]
    last = hits[-1] if len(found) > limit else None
    following = None if last is None else Place(found[limit - 1]["at"], last.session, last.line).cursor(query)
    return Page(hits, total, merged, following, notices, bool(inside) and total > 0)


def _begins_nowhere(connection: sqlite3.Connection, piece: Piece) -> bool:
    """Whether the piece has words, and no event has them all."""
    match = piece.match()
    if match is None:
        return False
    return connection.execute("SELECT 1 FROM words WHERE words MATCH ? LIMIT 1", (match,)).fetchone() is None


def _holds(body: str, literal: str) -> bool:
    return literal in body.casefold()


def _matches(
    connection: sqlite3.Connection,
    query: Query,
    pieces: Sequence[Piece],
    limit: int,
    after: Place | None,
    inside: frozenset[Piece],
) -> tuple[list[sqlite3.Row], int, int]:
    """(rows of the page and one more, hits in all, events merged into them)."""
    conditions, values = _conditions(query, pieces, inside)
    page = "1"
    page_values: tuple[Any, ...] = ()
    if after is not None:
        page = "(at<? OR (at=? AND (name>? OR (name=? AND line<?))))"
        page_values = (after.at, after.at, after.session, after.session, after.line)
    connection.row_factory = sqlite3.Row
    matching = f"""
        WITH m AS MATERIALIZED (
          SELECT e.id, e.lead, e.at, s.name, e.line FROM events e JOIN sessions s USING(sid) WHERE {conditions}
        ),
        shown AS (
          SELECT * FROM m WHERE lead IS NULL OR (lead NOT IN (SELECT id FROM m) AND id IN (
            SELECT id FROM (SELECT id, min(name || char(9) || printf('%012d', line)) FROM m
                            WHERE lead IS NOT NULL GROUP BY lead)
          ))
        )"""
    counted = f"""{matching}
        SELECT * FROM (SELECT *, count(*) OVER () AS total, (SELECT count(*) FROM m) AS events FROM shown)
        WHERE {page} ORDER BY at DESC, name, line DESC LIMIT ?"""
    rows = connection.execute(counted, (*values, *page_values, limit + 1)).fetchall()
    if rows:
        return rows, rows[0]["total"], rows[0]["events"] - rows[0]["total"]
    if after is None:
        return [], 0, 0
    total, events = connection.execute(
        f"{matching} SELECT (SELECT count(*) FROM shown), (SELECT count(*) FROM m)", values
    ).fetchone()
    return [], total, events - total


def _conditions(query: Query, pieces: Sequence[Piece], inside: frozenset[Piece]) -> tuple[str, list[Any]]:
    """A condition over `events e JOIN sessions s`, and the values bound in it, in order."""
    conditions: list[str] = []
    values: list[Any] = []

    def add(condition: str, *bound: Any) -> None:
        conditions.append(condition)
        values.extend(bound)

    narrowed = [match for piece in pieces if piece not in inside and (match := piece.match()) is not None]
    if narrowed:
        add("e.id IN (SELECT rowid FROM words WHERE words MATCH ?)", " AND ".join(narrowed))
    for name, column in (("outcome", "e.outcome"), ("skill", "e.skill"), ("layer", "e.layer"), ("session", "s.name")):
        value = {"outcome": query.outcome, "skill": query.skill, "layer": query.layer, "session": query.session}[name]
        if value is not None:
            add(f"{column}=?", _bindable(value))
    if query.outcome is not None:
        add("e.kind IN ('tool_call', 'tool_failure')")
    if query.tool is None and pieces:
        add("e.base_tool IS NOT ?", _SEARCH_TOOL)
    if query.tool is not None:
        add("(e.tool=? COLLATE NOCASE OR e.base_tool=? COLLATE NOCASE)", *[_bindable(query.tool)] * 2)
    if query.since is not None:
        add("e.at>=?", query.since)
    if query.until is not None:
        add("e.at<=?", query.until)
    if query.file is not None:
        add("EXISTS(SELECT 1 FROM files f WHERE f.event=e.id AND instr(f.path, ?)>0)", _bindable(query.file))
    for piece in pieces:
        if piece in inside or not piece.decided:
            add(*_literally(piece.literal))
    return " AND ".join(conditions) or "1", values


def _literally(literal: str) -> tuple[str, str]:
    """A condition that the event's text holds the literal, whatever its case."""
    if all(one.isascii() or one >= _UNSPACED_FROM for one in literal) and literal.casefold() == literal.lower():
        escaped = literal.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        return "(SELECT body FROM texts t WHERE t.id=e.id) LIKE ? ESCAPE '\\'", f"%{escaped}%"
    return "holds((SELECT body FROM texts t WHERE t.id=e.id), ?)", literal.casefold()


def _bindable(text: str) -> str:
    """SQLite takes no half surrogate pairs; nothing that was recorded holds one."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _hit(connection: sqlite3.Connection, match: sqlite3.Row, pieces: Sequence[Piece], snippet: int) -> Hit:
    row = connection.execute(
        "SELECT e.*, t.body FROM events e JOIN texts t USING(id) WHERE e.id=?", (match["id"],)
    ).fetchone()
    speaker = row["id"] if row["lead"] is None else row["lead"]
    others = connection.execute(
        "SELECT s.name, e.line, e.source FROM events e JOIN sessions s USING(sid)"
        " WHERE (e.lead=?1 OR e.id=?1) AND e.id<>?2 ORDER BY s.name, e.line",
        (speaker, row["id"]),
    ).fetchall()
    return Hit(
        session=match["name"],
        line=match["line"],
        time=row["time"],
        kind=row["kind"],
        agent=row["agent"],
        tool=row["tool"],
        outcome=row["outcome"],
        source=row["source"],
        skill=row["skill"],
        layer=row["layer"],
        run_id=row["run_id"],
        snippet=_around(row["body"], pieces, snippet),
        also=tuple(Other(one["name"], one["line"], one["source"]) for one in others),
    )


def _around(body: str, pieces: Sequence[Piece], width: int) -> str:
    """The part of the text around the first piece that stands in it, at most `width` characters."""
    folded = body.casefold()
    at = min((found for piece in pieces if (found := folded.find(piece.literal.casefold())) >= 0), default=0)
    start = max(0, min(at - width // 4, len(body) - width))
    part = body[start : start + width - 2]
    return ("…" if start > 0 else "") + part + ("…" if start + width - 2 < len(body) else "")
