"""Recorded sessions for tests of the analysis: made-up ones beside the tests, real ones where the corpus is."""

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from optimizer.analyze.claims import Checked, check_claim, claims_from
from optimizer.analyze.view import View
from optimizer.events import BadEvent, Event, parse
from optimizer.segment.segmenter import Segmenter

DATA = Path(__file__).parent.parent / "data" / "analysis"
CORPUS = Path(os.environ.get("MCP_EVO_CORPUS") or Path(__file__).parents[2] / ".." / "shared" / "corpus")

ORCHESTRATORS = {
    "rllm-train": ("rllm-clarify", "rllm-config", "rllm-run", "rllm-monitor", "rllm-analyze"),
    "traj-train-optimize": ("traj-segment", "traj-analyze-rllm", "traj-optimize"),
}


def group_of(skill: str) -> str | None:
    """The group that a skill's name begins with."""
    group = skill.split("-", 1)[0]
    return group if group in ("rllm", "traj", "meta") else None


def events_of(path: Path) -> list[Event]:
    """The events of a file; bad lines are passed over."""
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n")):
        if line.strip():
            try:
                found.append(parse(line, number))
            except BadEvent:
                continue
    return found


def view_of(session: str, events: list[Event]) -> View:
    """A whole session, whatever skills were in force."""
    segmenter = Segmenter(group_of)
    segmenter.feed(events)
    return View(session, events, segmenter.state.segments, "rllm", ORCHESTRATORS)


@cache
def made_up(name: str) -> View:
    """A made-up session."""
    return view_of(name, events_of(DATA / f"{name}.jsonl"))


def real(session: str) -> View:
    """A session of the corpus, by its id or the beginning of it. Skips where the corpus is absent."""
    folder = CORPUS / "sessions"
    if not folder.is_dir():
        pytest.skip(f"no corpus at {CORPUS}: set MCP_EVO_CORPUS to test against real sessions")
    return _real(session)


@cache
def _real(session: str) -> View:
    (path,) = (CORPUS / "sessions").glob(f"{session}*/events.jsonl")
    return view_of(path.parent.name, events_of(path))


def checked(view: View, **claim: Any) -> Checked:
    """The verdict on a claim about a session."""
    (one,) = claims_from([claim])
    return check_claim(one, {view.session: view.book}, {view.session: view.events})
