"""Oversized fields of a raw event are cut when raw files are compacted; what they were is kept as length and hash.

1. A text over the limit becomes its head, the middle's lines that the rules of outcomes read, and its tail, with one
   line between them that says how much is missing. It stays a text, so every reader of the event goes on working.
2. A list or mapping of very many members keeps its first and last ones.
3. `clipped` of the document names each cut field: path, bytes before, SHA-256 before. What was cut stays cut: clipping
   a clipped document changes nothing.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

FIELD_BYTES = 64 * 1024
"""UTF-8 bytes of a text that is left alone. One in a thousand texts of real sessions is longer; no failure, number or
path that a rule reads stood in the middle of one outside the lines that are kept."""

MANY = 2048
"""Members of a list or mapping that are left alone."""

MIDDLE_LINES = 24
"""Lines kept of a middle; each at most `LINE_CHARACTERS` long."""

LINE_CHARACTERS = 300

CLIPPED = "clipped"
"""Key of the document that lists what was cut."""

_EVIDENCE = re.compile(
    r"^(?:"
    r"[^\n]*Traceback \(most recent call last\)[^\n]*(?:\n[ \t]+File [^\n]*)?"
    r"|(?:/bin/)?(?:ba|z|da)?sh: [^\n]*"
    r"|fatal: [^\n]*"
    r"|[a-z]{2,10}: [^\n]*(?:No such file|cannot |not permitted|Permission denied|failed|error)[^\n]*"
    r")",
    re.MULTILINE,
)
"""Lines by which a call's outcome is judged: shell, coreutils, git and interpreter errors."""


def clip(document: Mapping[str, Any], field_bytes: int = FIELD_BYTES) -> dict[str, Any]:
    """The raw event with its oversized fields cut; equal to the input where nothing is over the limit.

    `field_bytes` is at least 1,024. The result's `clipped` holds what the input's held and what was cut now.
    """
    if field_bytes < 1024:
        raise ValueError(f"field_bytes is {field_bytes}; it must be at least 1024")
    notes: list[dict[str, Any]] = []
    earlier = document.get(CLIPPED)
    known = list(earlier) if isinstance(earlier, list) else []
    out = {
        key: value if key == CLIPPED else _clipped(value, [key], field_bytes, notes) for key, value in document.items()
    }
    if notes:
        out[CLIPPED] = [*known, *notes]
    return out


def clip_text(text: str, field_bytes: int) -> str:
    """Head, evidence, tail of `text`, together at most `field_bytes` long; `text` itself where it is short enough."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= field_bytes:
        return text
    budget = field_bytes - 160  # the line that says what is missing
    kept = _evidence(data[budget // 4 : len(data) - budget // 4].decode("utf-8", "ignore"), budget // 4)
    share = (budget - len(kept.encode("utf-8", "surrogatepass"))) // 2
    head = data[:share].decode("utf-8", "ignore")
    tail = data[len(data) - share :].decode("utf-8", "ignore")
    note = f"\n[… {len(data) - 2 * share} of {len(data)} bytes left out, sha256 {hashlib.sha256(data).hexdigest()}]\n"
    return f"{head}{note}{kept}{tail}"


def _evidence(middle: str, limit: int) -> str:
    lines: list[str] = []
    used = 0
    for found in _EVIDENCE.finditer(middle):
        line = found[0][:LINE_CHARACTERS] + "\n"
        used += len(line.encode("utf-8", "surrogatepass"))
        if used > limit or len(lines) == MIDDLE_LINES:
            break
        lines.append(line)
    return "".join(lines)


def _clipped(value: Any, path: Sequence[str | int], field_bytes: int, notes: list[dict[str, Any]]) -> Any:
    if isinstance(value, str):
        if len(value) <= field_bytes // 4 or len(data := value.encode("utf-8", "surrogatepass")) <= field_bytes:
            return value
        notes.append(_note(path, data))
        return clip_text(value, field_bytes)
    if isinstance(value, Mapping):
        keys = list(value)
        if len(keys) > MANY:
            notes.append(_note(path, _encoded(value), members=len(keys)))
            keys = keys[: MANY // 2] + keys[-MANY // 2 :]
        return {key: _clipped(value[key], [*path, key], field_bytes, notes) for key in keys}
    if isinstance(value, list):
        if len(value) > MANY:
            notes.append(_note(path, _encoded(value), members=len(value)))
            value = value[: MANY // 2] + value[-MANY // 2 :]
        return [_clipped(one, [*path, number], field_bytes, notes) for number, one in enumerate(value)]
    return value


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _note(path: Sequence[str | int], data: bytes, **more: int) -> dict[str, Any]:
    return {"path": list(path), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), **more}
