"""analyze_trajectories and `mcp-evo trajectories analyze`: scope by session, round and layer, claims, reports."""

import io
import json
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from analysis_helpers import DATA

from mcp_server.cli.main import run
from mcp_server.findings.evidence import analyse_layer
from mcp_server.state import LAYER_VARIABLE, ServerState
from mcp_server.tools.trajectories import SPECS
from optimizer.analyze.claims import ClaimError
from optimizer.analyze.report import ReportStore, markdown
from optimizer.home import Home
from optimizer.ids import BadId
from optimizer.layers import LayerError
from optimizer.round_store import RoundStore
from optimizer.round_types import RoundError

CLAIM = {"metric": "critic/score/mean", "run": "run_41", "comparator": "eq", "value": 0.36, "steps": 3, "lines": [6]}


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeded") / "work"
    Home.create(folder)
    return folder


@pytest.fixture
def root(seeded: Path, tmp_path: Path) -> Path:
    """A workspace of its own; seeding its bank anew for every test would take most of the time."""
    return Path(shutil.copytree(seeded, tmp_path / "work"))


def record(root: Path, name: str, session: str | None = None) -> str:
    """Puts a made-up session into a workspace."""
    session = session or name.replace("_", "-")
    folder = root / "trajectories" / "raw" / session
    folder.mkdir(parents=True)
    shutil.copy(DATA / f"{name}.jsonl", folder / "events.jsonl")
    return session


def kinds(found: object) -> set[str]:
    report = found.report  # type: ignore[attr-defined]
    return {one.kind for one in report.findings}


def test_a_report_has_the_same_id_and_content_each_time(root: Path) -> None:
    record(root, "config_not_launched_yes")
    state = ServerState(root)
    first, second = (analyse_layer(state, None, "rllm") for _ in range(2))
    assert first.path == second.path
    assert first.path.parent == root / "reports" / "rllm"
    assert first.report.model_dump(exclude={"created_at"}) == second.report.model_dump(exclude={"created_at"})
    text = first.path.with_suffix(".md").read_text()
    assert text == markdown(ReportStore(root).read(first.report.report_id))
    assert "config not launched" in text
    assert "config-not-launched-yes:1" in text
    assert "seed 7" in text


def test_claims_are_judged_kept_and_shown(root: Path) -> None:
    record(root, "claims")
    state = ServerState(root)
    text = "0.36 at step 3 because the learning rate was raised"
    given = [CLAIM, {**CLAIM, "value": 0.99}, {"text": "the learning rate is too high"}, {**CLAIM, "text": text}]
    found = analyse_layer(state, None, "rllm", claims=given)
    assert [str(one.verified) for one in found.report.claims] == ["yes", "no", "no", "machine form only"]
    stated = [one for one in found.report.findings if one.kind == "agent_claim"]
    assert len(stated) == 2
    assert all("because" not in one.what for one in stated)
    again = analyse_layer(state, None, "rllm", claims=[CLAIM])
    assert len(again.report.claims) == 4
    assert len(again.given) == 1
    shown = again.path.with_suffix(".md").read_text()
    assert "**no**: no machine form (not in machine form" in shown
    assert f"untested text: {text}" in shown
    with pytest.raises(ClaimError, match="comparator"):
        analyse_layer(state, None, "rllm", claims=[{**CLAIM, "comparator": "causes"}])


def test_series_are_listed_with_split_and_run(root: Path) -> None:
    record(root, "claims")
    report = analyse_layer(ServerState(root), None, "rllm").report
    line = next(one for one in report.series if one.name == "critic/score/mean" and one.run == "run_41" and not one.own)
    assert (line.split, line.axis, line.points, line.first_step, line.last_step, line.last) == (
        "train", "step", 12, 1, 12, "0.5400",
    )  # fmt: skip
    assert report.series_total >= len(report.series) > 3


def test_a_layer_reads_only_its_own_segments(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(root, "orchestrator_skipped_no")  # rllm-analyze, then the steps of traj-train-optimize
    state = ServerState(root)
    assert analyse_layer(state, None, "rllm").report.tool_calls == 1
    assert analyse_layer(state, None, "traj").report.tool_calls == 3
    assert analyse_layer(state, None, "any").report.tool_calls == 4
    outside = {"metric": "tool_calls", "comparator": "count", "value": 1, "lines": [4]}  # traj-segment
    assert str(analyse_layer(state, None, "rllm", claims=[outside]).report.claims[0].verified) == "no"
    assert str(analyse_layer(state, None, "traj", claims=[outside]).report.claims[0].verified) == "yes"
    monkeypatch.setenv(LAYER_VARIABLE, "traj")
    assert analyse_layer(state, None).report.layer == "rllm"
    assert analyse_layer(state, "orchestrator-skipped-no").report.tool_calls == 1  # what it may read, and no more
    for layer in ("traj", "any"):
        with pytest.raises(LayerError, match="only of 'rllm'"):
            analyse_layer(state, None, layer)


def test_all_sessions_of_a_layer(root: Path) -> None:
    record(root, "config_not_launched_yes")
    record(root, "wasted_waiting_yes")
    found = analyse_layer(ServerState(root), "all", "rllm")
    assert found.report.report_id == "layer-rllm"
    assert sorted(found.report.sessions) == ["config-not-launched-yes", "wasted-waiting-yes"]
    assert {"config_not_launched", "wasted_waiting"} <= kinds(found)
    ambiguous = analyse_layer(ServerState(root), "all", "rllm", claims=[CLAIM]).report.claims[0]
    assert "name the session" in ambiguous.reason


def test_a_round_is_its_session_and_its_run(root: Path) -> None:
    session = record(root, "config_not_launched_yes", "evolve-1")
    RoundStore(root).create(session, 1, request="r", run_id="run_41", trial_seed=1)
    found = analyse_layer(ServerState(root), None, "rllm", round_number=1)
    assert found.report.report_id == "round-rllm-000001"
    assert found.report.sessions == [session]
    with pytest.raises(RoundError, match="there is no round 7"):
        analyse_layer(ServerState(root), None, "rllm", round_number=7)


def test_a_session_without_our_skills_is_looked_at_as_a_whole(root: Path) -> None:
    folder = root / "trajectories" / "raw" / "plain"
    folder.mkdir(parents=True)
    lines = (DATA / "wasted_waiting_yes.jsonl").read_text().splitlines()[1:]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n")
    state = ServerState(root)
    with pytest.raises(BadId, match="layer any"):
        analyse_layer(state, "plain", "rllm")
    found = analyse_layer(state, "plain")
    assert found.path.parent.name == "other"
    assert "wasted_waiting" in kinds(found)


def here(root: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of `mcp-evo trajectories analyze`."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run(["--workspace", str(root), "trajectories", "analyze", *arguments])
    return code, out.getvalue(), err.getvalue()


def test_the_command_prints_the_report_or_one_document(root: Path, tmp_path: Path) -> None:
    record(root, "claims")
    code, text, _ = here(root)
    assert code == 0
    assert "# Report session-rllm-" in text
    path = tmp_path / "claims.json"
    path.write_text(json.dumps([CLAIM]))
    document = json.loads(here(root, "claims", "--claims", str(path), "--json")[1])
    assert document["claims"][0]["verified"] == "yes"
    assert document["path"].endswith(".json")
    assert json.loads(here(root, "--layer", "rllm", "--json")[1])["report_id"] == "layer-rllm"
    for wrong, word in ((["claims", "--round", "1"], "not both"), (["--layer", "meta"], "rllm, traj, any")):
        code, _, complaint = here(root, *wrong)
        assert code == 1
        assert word in complaint
    path.write_text("{}")
    code, _, complaint = here(root, "--claims", str(path))
    assert (code, "no list of claims" in complaint) == (1, True)


def test_the_tool_is_declared_in_few_words() -> None:
    (spec,) = [one for one in SPECS if one.function.__name__ == "analyze_trajectories"]
    assert len(spec.function.__doc__ or "") < 400
