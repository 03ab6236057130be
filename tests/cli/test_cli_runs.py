"""`mcp-evo runs compare`, `plot` and `prune` over runs of the worker that learns nothing."""

import json
import sys
from pathlib import Path

import pytest
from conftest import CommandLine

from skill_bank.packages.archive import unpack


@pytest.fixture
def two_runs(quick_cli: CommandLine) -> CommandLine:
    for name, rate in (("a", "3e-4"), ("b", "1e-4")):
        done = quick_cli.run("train", f"tiny, 32 problems, 4 steps, seed 1, lr {rate}", "--id", name, "--json")
        assert done.returncode == 0, done.stderr
    return quick_cli


def test_show_says_what_to_try(quick_cli: CommandLine) -> None:
    learner = Path(__file__).parents[1] / "support" / "fake_worker.py"
    quick_cli.environment["MCP_EVO_WORKER"] = json.dumps([sys.executable, "-P", str(learner)])
    request = "train the tiny calculator agent on 64 mixed problems, seed 1"
    done = quick_cli.run("train", request, "--profile", "original", "--id", "c", "--json")
    assert done.returncode == 0, done.stderr
    shown = quick_cli.run("runs", "show", "c").stdout
    assert "quarter 4, 49–64" in shown
    assert "epoch 2, 33–64" in shown
    assert "What to try\n  Try learning_rate 1e-05 → 0.0003 (or " in shown
    assert "Measured by a paired trial on test success" in shown.replace("\n", " ")


def test_compare(two_runs: CommandLine) -> None:
    document = two_runs.json("runs", "compare", "a", "b", "--json")
    assert document["runs"] == ["a", "b"]
    assert [one["field"] for one in document["config"]] == ["learning_rate"]
    assert document["verdict"]
    shown = two_runs.run("runs", "compare", "a", "b")
    assert shown.returncode == 0
    assert "learning_rate" in shown.stdout
    assert "only numbers of one row may be compared" in shown.stdout
    assert two_runs.run("runs", "compare", "a").returncode == 1
    assert "no run 'c'" in two_runs.run("runs", "compare", "a", "c").stderr


def test_plot(two_runs: CommandLine, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shown = two_runs.run("runs", "plot", "a")
    assert "Reward by step" in shown.stdout
    document = two_runs.json("runs", "plot", "a", "b", "--json", "--png", str(tmp_path / "curves.png"))
    assert [one["run_id"] for one in document["runs"]] == ["a", "b"]
    assert document["png"] == str(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "must end in .png" in two_runs.run("runs", "plot", "a", "--png", "curves.pdf").stderr
    assert "cannot be written" in two_runs.run("runs", "plot", "a", "--png", "/nowhere/at/all.png").stderr


def test_export(two_runs: CommandLine) -> None:
    with open(two_runs.workspace / "runs" / "a" / "worker.log", "a", encoding="utf-8") as stream:
        stream.write("Authorization: Bearer " + "sk-" + "a1B2" * 12 + "\n")
    document = two_runs.json("runs", "export", "a", "--json")
    file = Path(document["file"])
    assert file.name == "a.tar.gz"
    assert file.stat().st_size == document["size_bytes"]
    assert {"run/run.json", "run/config.json", "run/metrics.jsonl", "run/worker.log"} <= set(document["files"])
    package = unpack(file.read_bytes())
    assert package.manifest.facts["run_id"] == "a"
    assert b"a1B2a1B2" not in package.files["run/worker.log"]
    assert json.loads(package.files["run/run.json"])["run_id"] == "a"
    first = file.read_bytes()
    assert "exists" in two_runs.run("runs", "export", "a").stderr
    assert two_runs.run("runs", "export", "a", "--force").returncode == 0
    assert file.read_bytes() == first
    assert "must end in .tar.gz" in two_runs.run("runs", "export", "a", "--out", "a.zip").stderr
    assert "cannot be written" in two_runs.run("runs", "export", "a", "--out", "/nowhere/at/all.tar.gz").stderr


def test_prune_shows_a_plan_first(two_runs: CommandLine) -> None:
    assert "nothing to delete" in two_runs.run("runs", "prune").stdout  # the newest 20 stay
    planned = two_runs.run("runs", "prune", "--keep", "1", "--older-than", "0")
    assert "to delete: 1 folder" in planned.stdout
    assert "nothing was deleted" in planned.stdout
    assert "--yes" in planned.stdout
    assert (two_runs.workspace / "runs" / "a").exists()
    document = two_runs.json("runs", "prune", "--keep", "1", "--older-than", "0", "--json", "--yes")
    assert document["executed"] is True
    assert [one["run_id"] for one in document["outcome"]["deleted"]] == ["a"]
    assert document["outcome"]["size_bytes"] == document["plan"]["size_bytes"] > 0
    assert not (two_runs.workspace / "runs" / "a").exists()
    assert json.loads(two_runs.run("runs", "list", "--json").stdout)["total"] == 1


def test_prune_follows_the_workspaces_configuration(two_runs: CommandLine) -> None:
    with open(two_runs.workspace / "config.yaml", "a", encoding="utf-8") as stream:
        stream.write("keep_runs: 0\nkeep_runs_days: 0\n")
    plan = two_runs.json("runs", "prune", "--json")["plan"]
    assert {one["run_id"] for one in plan["delete"]} <= {"a", "b"}
    assert len(plan["delete"]) + len(plan["keep"]) == 2
    assert all("newest" not in one["reason"] for one in plan["keep"])
