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
