"""Explaining both ways: what a value rests on, and what rests on an event, run, finding, trial or patch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import FAKE_WORKER, say_yes

from optimizer.evolve import evolve, new_request
from optimizer.explain import ExplainError, explain
from optimizer.home import Home
from optimizer.ids import BadId
from optimizer.patch_store import PatchError
from optimizer.promote import take_back
from optimizer.stage import built
from optimizer.trial.pooled import PooledArms
from trainer.runs.launch import LocalLauncher

VALUE = "rllm-config:learning_rate.default"


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A workspace in which one round trained, tried and promoted a patch."""
    home = Home.create(tmp_path_factory.mktemp("evolved") / "workspace")
    text = "train the tiny calculator agent on 64 mixed problems, seed 1"
    request = new_request(home, text, 1, "original", evolution="evolve-1", seed=5, plan="quick", final_trial=True)
    runners: Callable[[Path, bool], PooledArms] = lambda folder, tokens: PooledArms(folder, command=FAKE_WORKER)  # noqa: E731
    launcher = LocalLauncher(command=FAKE_WORKER)
    document = evolve(home, request, say_yes, lambda one: None, launcher=launcher, runners=runners)
    assert document["rounds"][0]["patch_id"] is not None
    return home


def chain(home: Home, target: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = explain(home, target)["chain"]
    assert all({"kind", "id"} <= set(one) for one in found)
    return found


def ids(entries: list[dict[str, Any]], kind: str) -> list[str]:
    return [one["id"] for one in entries if one["kind"] == kind]


def test_each_thing_a_value_rests_on_leads_back_to_it(evolved: Home) -> None:
    up = chain(evolved, "rllm-config:learning_rate")
    kinds = {one["kind"] for one in up}
    assert kinds == {"value", "patch", "approval", "trial", "finding", "run", "event"}
    (patch,) = ids(up, "patch")
    events = ids(up, "event")
    assert events
    starts = [f"{kind}:{one}" for kind in ("patch", "trial", "finding", "run", "event") for one in ids(up, kind)]
    for start in starts:
        down = chain(evolved, start)
        first, rest = down[0], down[1:]
        assert f"{first['kind']}:{first['id']}" == start
        assert first["patches"] == [patch]
        assert ids(down, "patch") == [patch]
        assert VALUE in ids(rest, "value")
        assert ids(down, "approval") == ids(up, "approval")
        assert len({(one["kind"], one["id"]) for one in down}) == len(down)
    assert set(ids(up, "event")) == set(chain(evolved, f"run:{ids(up, 'run')[0]}")[0]["events"])


def test_the_lines_are_those_of_the_patch(evolved: Home) -> None:
    down = chain(evolved, f"patch:{chain(evolved, VALUE)[1]['id']}")
    text = built(evolved.bank, "rllm-config", "original").files["SKILL.md"].decode().split("\n")
    lines = [one for one in down if one["kind"] == "line"]
    assert lines
    for one in lines:
        number = int(one["id"].rpartition(":")[2])
        assert text[number - 1] == one["text"]
        upwards = explain(evolved, one["id"], "original")["chain"]
        assert upwards[1]["id"] == down[0]["id"]


def test_what_nothing_rests_on_ends_at_itself(evolved: Home) -> None:
    prompt = next(event for event in evolved.trajectories.read("evolve-1").events if event.text is not None)
    (only,) = chain(evolved, f"event:evolve-1:{prompt.line}")
    assert only["patches"] == []


def test_what_does_not_exist_is_refused(evolved: Home) -> None:
    for target, message in (
        ("event:evolve-1", "event:SESSION:LINE"),
        ("trial:trial-nothing", "There are: trial-"),
        ("run:nothing", "nothing"),
        ("finding:nothing", "no report holds finding"),
        ("rllm-config", "the other way"),
    ):
        with pytest.raises(ExplainError, match=message):
            explain(evolved, target)
    with pytest.raises(BadId):
        explain(evolved, "event:evolve-1:99999")
    with pytest.raises(PatchError, match="there is no patch"):
        explain(evolved, "patch:nothing")


def test_a_patch_that_was_taken_back_has_no_value_left(evolved: Home) -> None:
    from optimizer.approvals import Channel

    patch = chain(evolved, VALUE)[1]["id"]
    take_back(evolved, patch, channel=Channel.TERMINAL, reason="to see what is left")
    down = chain(evolved, f"patch:{patch}")
    assert down[0]["stage"] == "archived"
    assert ids(down, "value") == ids(down, "line") == []
    assert ids(down, "trial")
