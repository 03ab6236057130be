"""What a workspace takes, part by part."""

from pathlib import Path

from pydantic import BaseModel

from optimizer.retention import bytes_below

PARTS = {
    "runs": ("runs",),
    "raw": ("trajectories/raw",),
    "segments": ("trajectories/segments",),
    "index": ("trajectories/index.db", "trajectories/index.db-wal", "trajectories/index.db-shm"),
    "experience": ("experience",),
    "trials": ("trials",),
    "evaluations": ("evaluations",),
    "reports": ("reports",),
    "skills": ("skills",),
}
"""Part → what of the workspace belongs to it; everything else is `other`."""


class PartSize(BaseModel):
    """One part of a workspace."""

    part: str
    size_bytes: int


def sizes_of(root: Path) -> list[PartSize]:
    """All parts, the largest first; they add up to the whole workspace."""
    found = {part: sum(bytes_below(root / name) for name in names) for part, names in PARTS.items()}
    found["other"] = max(0, bytes_below(root) - sum(found.values()))
    return [
        PartSize(part=part, size_bytes=size) for part, size in sorted(found.items(), key=lambda one: (-one[1], one[0]))
    ]


def size_text(size_bytes: int) -> str:
    """`12.3 MB`."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def sizes_text(parts: list[PartSize]) -> str:
    """`12.3 MB: runs 10.0 MB, raw 2.3 MB`: the whole and its parts."""
    total = sum(one.size_bytes for one in parts)
    shown = ", ".join(f"{one.part} {size_text(one.size_bytes)}" for one in parts if one.size_bytes)
    return f"{size_text(total)}: {shown}" if shown else size_text(total)
