"""The documents of the dashboard: what they hold, and that nothing gets out of bounds or leaves the workspace."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dashboard_helpers import HOSTILE, SUCCESS, Made, make_run
from hypothesis import given
from hypothesis import strategies as st

from mcp_server.dashboard.documents import ANSWERS, answer
from mcp_server.dashboard.shaping import MAX_DEPTH, MAX_TEXT, BadQuestion, NotThere, Question, paged, shaped
from mcp_server.dashboard.source import Source
from mcp_server.state import ServerState
from optimizer.approvals import ApprovalError, Channel
from optimizer.promote import Digests, approve, promote

# ---- bounds


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(VALUES)
def test_whatever_goes_in_is_plain_json(value: Any) -> None:
    text = json.dumps(shaped(value), allow_nan=False)
    assert not set(text) & {"\u202e", "\u200b"}
    assert not set("".join(_texts(shaped(value)))) & set("\x00\x1b\u202e\u2066\u200b\U000e0041")


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, one in value.items() for text in (key, *_texts(one))]
    return [text for one in value for text in _texts(one)] if isinstance(value, list) else []


def test_long_and_deep_values_are_cut() -> None:
    cut = shaped("x" * (MAX_TEXT + 5))
    assert cut == "x" * MAX_TEXT + f"… ({MAX_TEXT + 5} characters)"
    assert shaped("x" * MAX_TEXT) == "x" * MAX_TEXT
    deep: Any = "end"
    for _ in range(200):
        deep = [deep]
    found, depth = shaped(deep), 0
    while isinstance(found, list):
        found, depth = found[0], depth + 1
    assert (found, depth) == ("…", MAX_DEPTH)
    assert shaped([math.nan, math.inf, 1.5]) == [None, None, 1.5]


def test_pages_of_a_list() -> None:
    items = list(range(7))
    first, page = paged(items, Question({"limit": "3"}))
    assert (list(first), page) == ([0, 1, 2], {"total": 7, "cursor": "3"})
    last, page = paged(items, Question({"limit": "3", "cursor": "6"}))
    assert (list(last), page) == ([6], {"total": 7, "cursor": None})
    assert list(paged(items, Question({"cursor": "100"}))[0]) == []
    for wrong in (
        {"limit": "0"},
        {"limit": "201"},
        {"limit": "-1"},
        {"cursor": "x"},
        {"cursor": "١"},
        {"cursor": "9" * 40},
    ):
        with pytest.raises(BadQuestion, match="whole number"):
            paged(items, Question(wrong))


# ---- paths


@pytest.mark.parametrize(
    "path",
    ["", "/", "runs/", "/runs", "nothing", "runs/../patches", "runs/..", "runs/%2e%2e", "runs/.", "runs/a/b/c/d/e/f",
     "RUNS", "runs/run-one/nothing", "patches/" + "x" * 65, "x" * 500, "runs/run-one\x00", "runs/run-one/episodes/x",
     "runs/run-one/episodes/-1", "runs/run-one/episodes/30/1", "runs/run-one/episodes/99", "runs/run", "rounds/1",
     "rounds/0001000000000", "skills/nothing", "skills/-x", "experience/nothing", "experience/..", "patches/nothing",
     "skills\\rllm-config", "runs/run-оne"],
)  # fmt: skip
def test_what_is_not_there(made_once: Made, path: str) -> None:
    with pytest.raises(NotThere):
        answer(Source(made_once.state), path, {})


def test_looking_creates_nothing(tmp_path: Path) -> None:
    source = Source(ServerState(tmp_path / "nowhere" / ".mcp-evo"))
    for pattern, _ in ANSWERS:
        with pytest.raises(NotThere):
            answer(source, pattern.replace("*", "1"), {})
    assert list(tmp_path.iterdir()) == []


def test_a_link_out_of_the_workspace_is_no_run(made: Made, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    (made.root / "runs" / "linked").symlink_to(tmp_path / "outside")
    with pytest.raises(NotThere):
        answer(Source(made.state), "runs/linked", {})


# ---- what they hold


def ask(made: Made, path: str, **values: str) -> dict[str, Any]:
    return answer(Source(made.state), path, values)


def test_the_overview(made_once: Made) -> None:
    found = ask(made_once, "overview")
    assert found["workspace"] == "project"
    assert (found["runs"], found["active"], found["patches"], found["in_force"]) == (1, [], 2, 0)
    assert set(found["waiting"]) == {made_once.patch_id, made_once.prose_id}


def test_a_run(made_once: Made) -> None:
    (row,) = ask(made_once, "runs")["runs"]
    assert (row["run_id"], row["state"], row["model"], row["reward"]) == ("run-one", "finished", "tiny", 1.0)
    assert row["request"] == f"train the tiny agent {HOSTILE}"  # data: the page shows it as text
    page = ask(made_once, "runs/run-one")
    assert page["config"][0]["field"] == "learning_rate"
    assert page["config"][0]["source"] == "set"
    assert {one["source"] for one in page["config"][1:]} == {"default"}


def test_steps_come_in_parts(made_once: Made) -> None:
    source = Source(made_once.state)
    whole = answer(source, "runs/run-one/steps", {})
    assert whole["steps"] == list(range(1, 31))
    assert whole["series"]["reward_mean"][14] == pytest.approx(0.5)
    assert whole["series"]["seconds.generate"] == [0.1] * 30
    assert "kl" not in whole["series"]  # never measured, so it is not drawn as zero
    assert whole["evals"] == [
        {"name": "validation", "step": 10, "mean": 0.5, "ci95": [0.4, 0.6], "n": 128, "split": "validation"}
    ]
    later = answer(source, "runs/run-one/steps", {"since": "28"})
    assert (later["steps"], later["last"]) == ([29, 30], 30)
    assert answer(source, "runs/run-one/steps", {"since": "30"})["steps"] == []
    with pytest.raises(BadQuestion):
        answer(source, "runs/run-one/steps", {"since": "-1"})


def test_a_long_run_is_drawn_with_600_points(made: Made) -> None:
    make_run(made.state, "run-long", 1500)
    found = ask(made, "runs/run-long/steps")
    assert len(found["steps"]) == 600
    assert found["steps"][-1] == 1500
    values = found["series"]["reward_mean"]
    assert values == sorted(values)
    assert len(json.dumps(found)) < 120_000


def test_an_episode_by_turns_and_tokens(made_once: Made) -> None:
    assert ask(made_once, "runs/run-one/episodes")["steps"] == [{"step": 30, "reward": 1.0}]
    (row,) = ask(made_once, "runs/run-one/episodes/30")["episodes"]
    assert (row["place"], row["reward"], row["tokens"]) == (0, 1.0, 4)
    page = ask(made_once, "runs/run-one/episodes/30/0")
    assert page["messages"][0]["text"] == f"Compute 1 + 1. {HOSTILE}"
    assert page["messages"][1]["calls"] == [{"name": "finish", "arguments": '{"answer": "2\N{REPLACEMENT CHARACTER}"}'}]
    assert page["tokens"]["mask"] == [True, True, False, True]
    assert page["tokens"]["total"] == 4
    assert all(page["tokens"]["pieces"])  # the bundled model's tokenizer knows them
    assert not [one for one in page["tokens"]["pieces"] if one.startswith("#")]


def test_a_patch_holds_all_that_a_person_needs(made_once: Made) -> None:
    rows = ask(made_once, "patches")["patches"]
    assert [one["waits"] for one in rows] == [True, True]
    page = ask(made_once, f"patches/{made_once.patch_id}")
    assert page["verdict"] == "better"
    assert page["changes"][0]["after"] == 0.9
    assert "+" in page["diff"]
    assert len(page["digests"]["result"]) == 64
    assert page["why_not"] is None
    (trial,) = page["trials"]
    assert [(one["base"], one["patched"]) for one in trial["pairs"]] == SUCCESS
    assert trial["summary"]["effect"] == pytest.approx(0.275)
    assert page["command"].endswith(f"--workspace {made_once.root} approve {made_once.patch_id}")
    prose = ask(made_once, f"patches/{made_once.prose_id}")
    assert prose["trials"] == []
    assert HOSTILE in prose["diff"]


def test_the_mark_follows_what_is_shown(made: Made) -> None:
    before = ask(made, f"patches/{made.patch_id}")["mark"]
    assert ask(made, f"patches/{made.patch_id}")["mark"] == before
    home = made.state.home()
    home.patches.write(home.patches.read(made.patch_id).model_copy(update={"effect": 0.9}))
    assert ask(made, f"patches/{made.patch_id}")["mark"] != before


def test_lessons(made_once: Made) -> None:
    assert ask(made_once, "experience")["pools"][0]["by_status"] == {"active": 1, "quarantined": 1}
    found = ask(made_once, "experience/default")
    assert [one["status"] for one in found["records"]] == ["active", "quarantined"]
    uplift = found["records"][0]["uplift"]
    assert uplift["value"] == pytest.approx(24 / 30 - 5 / 10)
    assert uplift["ci95"][0] < uplift["value"] < uplift["ci95"][1]
    assert ask(made_once, "experience/default", status="retired")["records"] == []
    with pytest.raises(BadQuestion, match="active"):
        ask(made_once, "experience/default", status="any")


def test_skills(made_once: Made) -> None:
    names = {one["skill"]: one for one in ask(made_once, "skills")["skills"]}
    assert names["rllm-config"]["version"] == 1
    page = ask(made_once, "skills/rllm-config")
    assert [one["version"] for one in page["versions"]] == [1]
    same = ask(made_once, "skills/rllm-config/changes")
    assert (same["diff"], same["policy"], same["profiles"]) == ("", [], [])
    with pytest.raises(NotThere, match="versions 1 to 1"):
        ask(made_once, "skills/rllm-config/changes", to="2")


def test_every_document_is_small(made_once: Made) -> None:
    paths = [
        "overview",
        "runs",
        "runs/run-one",
        "runs/run-one/steps",
        "patches",
        f"patches/{made_once.patch_id}",
        "skills",
    ]
    for path in paths:
        assert len(json.dumps(ask(made_once, path))) < 64_000, path


def test_what_a_patch_changed_in_a_skill(made: Made) -> None:
    home = made.state.home()
    approve(home, made.patch_id, Channel.TERMINAL)
    promote(home, made.patch_id)
    found = ask(made, "skills/rllm-config/changes")
    assert (found["from"], found["to"], found["profiles"]) == (1, 2, [])
    (change,) = found["policy"]
    assert (change["key"], change["after"], change["patch"]) == ("temperature.default", 0.9, made.patch_id)
    assert "+Warmer." in found["diff"]
    assert ask(made, "overview")["in_force"] == 1
    assert [one["kind"] for one in ask(made, f"patches/{made.patch_id}")["audit"]] == ["approved", "promoted"]


def test_an_approval_is_of_what_was_shown(made: Made) -> None:
    home = made.state.home()
    page = ask(made, f"patches/{made.patch_id}")
    shown = Digests(page["digests"]["base"], page["digests"]["result"])
    for other in (replace(shown, base="0" * 64), replace(shown, result="0" * 64)):
        with pytest.raises(ApprovalError, match="changed after it was shown"):
            approve(home, made.patch_id, Channel.DASHBOARD, shown=other)
    assert made.audit() == []
    assert approve(home, made.patch_id, Channel.DASHBOARD, shown=shown).result_digest == shown.result
