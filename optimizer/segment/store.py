"""Segments on disk: `segments/<layer>/<session>.jsonl`, derived from the raw events and rebuildable at any time.

Each session has a state file, `segments/state/<session>.json`, so that segmenting again reads only new bytes. Deleting
the whole `segments` folder loses nothing.
"""

from dataclasses import asdict
from pathlib import Path

import msgspec

from optimizer.layers import Layer, check_read
from optimizer.segment.segmenter import GroupOf, Segmenter, SegmenterState
from optimizer.segment.types import Segment
from optimizer.store import Position, TrajectoryStore
from skill_bank.files import lock_of, read_json, read_json_lines, write_bytes_atomic, write_json_atomic

_STATE_VERSION = 2


class SegmentStore:
    """Segments of a workspace's sessions."""

    def __init__(self, store: TrajectoryStore, group_of: GroupOf) -> None:
        self.store = store
        self.root = store.root / "segments"
        self.group_of = group_of

    def update(self, session: str) -> list[Segment]:
        """Takes in what is new and returns all segments of the session, in order of their first line."""
        self.store.file(session)  # refuses a session that cannot name a file before anything is made
        state_path = self.root / "state" / f"{session}.json"
        state_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with lock_of(state_path):
            position, state = self._load(state_path)
            batch = self.store.read(session, position)
            if batch.restarted:
                state = SegmenterState()
            elif position is not None and position.offset == batch.position.offset:
                return state.segments
            segmenter = Segmenter(self.group_of, state)
            segmenter.feed(batch.events)
            self._write_segments(session, segmenter.state.segments)
            write_json_atomic(
                state_path,
                {
                    "version": _STATE_VERSION,
                    "position": asdict(batch.position),
                    "state": msgspec.to_builtins(segmenter.state),
                },
            )
        return segmenter.state.segments

    def update_all(self) -> dict[str, list[Segment]]:
        """Segments of every session."""
        return {session: self.update(session) for session in self.store.sessions()}

    def of_layer(self, layer: Layer | str, *, reader: Layer | str | None = None) -> list[Segment]:
        """Stored segments of a layer. With a `reader`, raises LayerError unless that optimiser may read the layer."""
        if reader is not None:
            check_read(reader, layer)
        folder = self.root / Layer(layer)
        found: list[Segment] = []
        for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else []:
            found += [msgspec.convert(row, Segment) for _, row in read_json_lines(path).rows]
        return found

    def _load(self, path: Path) -> tuple[Position | None, SegmenterState]:
        """The state, or a fresh one where there is none or it is damaged (it is derived: rebuilding it costs time)."""
        try:
            document = read_json(path)
            if document["version"] != _STATE_VERSION:
                return None, SegmenterState()
            return Position(**document["position"]), msgspec.convert(document["state"], SegmenterState)
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return None, SegmenterState()

    def _write_segments(self, session: str, segments: list[Segment]) -> None:
        for layer in Layer:
            mine = [one for one in segments if one.layer == layer]
            path = self.root / layer / f"{session}.jsonl"
            if mine:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                lines = [msgspec.json.encode(one.document()) for one in mine]
                write_bytes_atomic(path, b"\n".join(lines) + b"\n", mode=0o600)
            else:
                path.unlink(missing_ok=True)
