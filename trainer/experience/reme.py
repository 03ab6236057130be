"""ReMe's JSON lines, read and written without loss: the flat dump (`dump`/`load`) and the live store of 0.2.

Flat: one TaskMemory a line, `{workspace_id, memory_id, memory_type, when_to_use, content, score, time_created,
time_modified, author, metadata}`; `metadata` as an object or as a JSON string; libraries say created_time and
modified_time. Live store: one VectorNode a line, `{unique_id, workspace_id, content: when_to_use, vector, metadata:
{memory_type, content, score, time_created, time_modified, author, metadata: "<JSON string>"}}`.

Mapping: score ↔ quality, metadata.freq ↔ retrieved, metadata.utility ↔ won, workspace_id ↔ pool; everything else of
ours lies under metadata.mcp_evo. A line that came from ReMe and was not changed here is written as it came;
vectors go back only to the live store and only where the text that they stand for is the same (vectors of
different embedders do not compare; ours are never exported).
"""

import hashlib
import json
import time
from calendar import timegm
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from skill_bank.files import encoded, read_json_lines, write_bytes_atomic
from trainer.experience.leaks import LeakError
from trainer.experience.pool import ExperiencePool
from trainer.experience.problems import ExperienceError
from trainer.experience.records import ExperienceRecord, Kind, Status, document_of, record_from

OURS = "mcp_evo"
_STAMP = "%Y-%m-%d %H:%M:%S"
_MAPPED = ("when_to_use", "content", "quality", "author", "id", "pool")


class Shape(StrEnum):
    """The two kinds of file."""

    FLAT = "flat"
    LIVE = "live"


class RemeFormatError(ValueError):
    """A line that is no memory of ReMe; the message says what is missing."""


def shape_of(document: Any) -> Shape:
    """Which kind of line it is. Raises RemeFormatError."""
    if not isinstance(document, Mapping):
        raise RemeFormatError(f"a memory is a JSON object, not {type(document).__name__}")
    if "unique_id" in document and isinstance(document.get("metadata"), Mapping):
        return Shape.LIVE
    if "content" in document and ("when_to_use" in document or "memory_id" in document):
        return Shape.FLAT
    raise RemeFormatError(
        "neither a memory (when_to_use, content) nor a node of the live store (unique_id, content, metadata); it has "
        f"{', '.join(sorted(map(str, document))[:8]) or 'no fields'}"
    )


def from_reme(document: Any) -> ExperienceRecord:
    """The record of a line of either kind. The same line gives the same record. Raises RemeFormatError."""
    shape = shape_of(document)
    if shape is Shape.LIVE:
        inner = document["metadata"]
        fields = {**inner, "when_to_use": document.get("content", ""), "memory_id": document["unique_id"]}
        fields["workspace_id"] = document.get("workspace_id", "")
    else:
        fields = document
    metadata = _metadata(fields.get("metadata"))
    own = metadata.get(OURS)
    base = (
        _base(own) if isinstance(own, Mapping) else ExperienceRecord("", "", id="", status=Status.ACTIVE, created=0.0)
    )
    when, content = _text(fields.get("when_to_use", "")), _text(fields.get("content", ""))
    identity = fields.get("memory_id")
    created = _seconds(fields, ("time_created", "created_time"), base.created)
    kind = str(fields.get("memory_type", ""))
    record = base.changed(
        when_to_use=when,
        content=content,
        id=identity if isinstance(identity, str) and identity else _made_id(when, content),
        pool=_text(fields.get("workspace_id", "")) or base.pool,
        kind=Kind(kind) if kind in list(Kind) else base.kind,
        quality=_number(fields.get("score"), base.quality),
        author=_text(fields.get("author", "")),
        created=created,
        modified=_seconds(fields, ("time_modified", "modified_time"), base.modified if own else created),
        counters=base.counters.__class__(
            **{
                **base.counters.__dict__,
                "retrieved": _count(metadata.get("freq"), base.counters.retrieved),
                "won": _count(metadata.get("utility"), base.counters.won),
            }
        ),
        foreign=None,
    )
    if own is not None:
        return record.changed(foreign=base.foreign)
    tags = metadata.get("tags")
    if isinstance(tags, list):
        record = record.changed(tags=tuple(str(tag) for tag in tags))
    return record.changed(foreign={"shape": shape.value, "line": dict(document)})


def to_reme(record: ExperienceRecord, shape: Shape) -> dict[str, Any]:
    """The line of a record; what came from ReMe in this shape and was not changed is the line that came."""
    came = None if record.foreign is None else record.foreign.get("line")
    if came is not None and record.foreign is not None and record.foreign.get("shape") == shape:
        original = from_reme(came)
        if record == original.changed(pool=record.pool, foreign=record.foreign):
            return dict(came)
    metadata, extra, vector = _inherited(record, came)
    if record.counters.retrieved or "freq" in metadata:
        metadata["freq"] = record.counters.retrieved
    if record.counters.won or "utility" in metadata:
        metadata["utility"] = record.counters.won
    if record.tags:
        metadata["tags"] = list(record.tags)
    own = document_of(record)
    metadata[OURS] = {key: value for key, value in own.items() if key not in _MAPPED}
    created, modified = _stamp(record.created), _stamp(record.modified)
    memory_type = extra.pop("memory_type", record.kind.value)
    common = {
        "score": record.quality,
        "time_created": created,
        "time_modified": modified,
        "author": record.author,
    }
    if shape is Shape.FLAT:
        return {
            "workspace_id": record.pool,
            "memory_id": record.id,
            "memory_type": memory_type,
            "when_to_use": record.when_to_use,
            "content": record.content,
            **common,
            "metadata": metadata,
            **extra,
        }
    return {
        "unique_id": record.id,
        "workspace_id": record.pool,
        "content": record.when_to_use,
        "vector": vector,
        "metadata": {
            "memory_type": memory_type,
            "content": record.content,
            **common,
            "metadata": json.dumps(metadata, ensure_ascii=False),
            **extra,
        },
    }


@dataclass
class Imported:
    """What became of a file."""

    added: int = 0
    existing: int = 0
    """Their id was in the pool already; they were left as they are."""
    refused: list[tuple[int, str]] = field(default_factory=list)
    """(line, why): leaks, and lines that are no memory."""
    bad_lines: list[int] = field(default_factory=list)
    """Lines that are no JSON."""
    shapes: set[Shape] = field(default_factory=set)


def import_file(
    pool: ExperiencePool, path: Path, *, status: Status | None = None, redact: Callable[[str], str] | None = None
) -> Imported:
    """Takes over a file of either kind (lines may be mixed); its own pool names give way to the pool's.

    `status`: what records from elsewhere get; None: active, and for our own exports the status that they had. Redaction
    is off by default because it would change what came; pass the pool's to have it. Raises ExperienceError for a file
    that cannot be read, PoolError with nothing taken over.
    """
    try:
        lines = read_json_lines(path)
        rest = path.read_bytes()[lines.end :]
    except OSError as error:
        raise ExperienceError(f"{path} cannot be read: {error.strerror or error}") from error
    rows, bad = list(lines.rows), list(lines.bad_lines)
    if rest.strip():  # a last line without a line feed
        number = max([0, *bad, *(at for at, _ in rows)]) + 1
        try:
            rows.append((number, json.loads(rest)))
        except ValueError:
            bad.append(number)
    result = Imported(bad_lines=bad)
    with pool.store.changing():
        for number, document in rows:
            try:
                record = from_reme(document)
                result.shapes.add(shape_of(document))
            except RemeFormatError as error:
                result.refused.append((number, str(error)))
                continue
            foreign = record.foreign is not None
            record = record.changed(
                pool=pool.name,
                status=status if status is not None and foreign else record.status,
                when_to_use=record.when_to_use if redact is None else redact(record.when_to_use),
                content=record.content if redact is None else redact(record.content),
            )
            try:
                pool.insert_as_is(record)
                result.added += 1
            except LeakError as error:
                result.refused.append((number, str(error)))
            except ValueError:
                result.existing += 1
    return result


def export_lines(records: Iterable[ExperienceRecord], shape: Shape) -> Iterator[bytes]:
    """One line a record."""
    for record in records:
        yield encoded(json.dumps(to_reme(record, shape), ensure_ascii=False)) + b"\n"


def export_file(pool: ExperiencePool, path: Path, shape: Shape, statuses: Iterable[Status] = tuple(Status)) -> int:
    """Writes the pool to a file in one step and returns the number of records. Raises PoolError, ExperienceError."""
    lines = list(export_lines(pool.store.iterate(statuses), shape))
    try:
        write_bytes_atomic(path, b"".join(lines))
    except OSError as error:
        raise ExperienceError(f"{path} cannot be written: {error.strerror or error}") from error
    return len(lines)


def _base(own: Mapping[str, Any]) -> ExperienceRecord:
    try:
        return record_from({"when_to_use": "", "content": "", "id": "", **own})
    except ValueError as error:
        raise RemeFormatError(f"metadata.{OURS}: {error}") from error


def _metadata(value: Any) -> dict[str, Any]:
    """`metadata` as an object, whether it came as one or as a JSON string."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return dict(value) if isinstance(value, Mapping) else {}


def _inherited(record: ExperienceRecord, came: Any) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """(metadata, further fields, vector) of the line that the record came from."""
    if not isinstance(came, Mapping):
        return {}, {}, None
    live = shape_of(came) is Shape.LIVE
    fields = came["metadata"] if live else came
    known = {"workspace_id", "memory_id", "when_to_use", "content", "score", "time_created", "time_modified", "author"}
    extra = {key: value for key, value in fields.items() if key not in known | {"metadata"}}
    vector = came.get("vector") if live and came.get("content") == record.when_to_use else None
    return _metadata(fields.get("metadata")), extra, vector


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(value: Any, default: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else default


def _count(value: Any, default: int) -> int:
    return (
        int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**62 else default
    )


def _made_id(when: str, content: str) -> str:
    """The id of a memory that has none: of its text, so that reading it twice gives one."""
    return hashlib.sha256(f"{when}\n{content}".encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _stamp(seconds: float) -> str:
    """UTC; ReMe writes local time without saying which."""
    try:
        return time.strftime(_STAMP, time.gmtime(seconds))
    except (ValueError, OverflowError, OSError):
        return time.strftime(_STAMP, time.gmtime(0))


def _seconds(fields: Mapping[str, Any], names: Iterable[str], default: float) -> float:
    for name in names:
        text = fields.get(name)
        if isinstance(text, str) and text != _stamp(default):  # ours knows fractions of a second
            try:
                return float(timegm(time.strptime(text, _STAMP)))
            except ValueError:
                continue
    return default
