"""`mcp-evo tasks` and its process: killed and gone on with, the same bytes under any hash seed, errors, a run that
trains on what was made."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from generation_helpers import HERE, contents, folder_for, purchases, write_rows

from mcp_server.cli import main
from trainer.generation.folder import SetFolder, find_set, known_sets, resume_set, start_set, wait_for
from trainer.generation.types import GenerationError
from trainer.runs.registry import find_run
from trainer.runs.report import build_report, report_lines
from trainer.runs.workspace import Workspace, create_workspace


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "mcp_server.cli.main", *arguments]


def mcp_evo(where: Path, *arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("MCP_EVO_HOME", "PYTHONPATH")}
    return subprocess.run(
        command(*arguments, "--workspace", str(where / "workspace")),
        cwd=where,
        env=environment | {"HOME": str(where)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@dataclass(frozen=True)
class Said:
    """What a command answered."""

    code: int
    out: str
    err: str


Here = Callable[..., Said]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """`mcp-evo tasks …` in this process: without the price of a start."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MCP_EVO_HOME", raising=False)

    def run(*arguments: str) -> Said:
        capsys.readouterr()
        code = main.run(["tasks", *arguments, "--workspace", str(tmp_path / "workspace")])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run


def settings(where: Path, environment: str = "Shop") -> list[str]:
    """The made-up shop, whose problems come from a file."""
    write_rows(where / "shop.jsonl", purchases((2, 7)))
    pairs = (f"env=python:shop_world:{environment}", "data=shop.jsonl", f"folder={HERE}")
    return [word for pair in pairs for word in ("--set", pair)]


def shop_plan(where: Path, name: str) -> SetFolder:
    data = write_rows(where / "shop.jsonl", purchases((2, 7)))
    config = {"env": "python:shop_world:Shop", "data": str(data), "problems": 64}
    return folder_for(where, config=config, name=name, count=8)


def test_hash_seeds_change_nothing(tmp_path: Path) -> None:
    made = []
    for hash_seed in ("1", "2"):
        folder = shop_plan(tmp_path, f"seed-{hash_seed}")
        subprocess.run(
            [sys.executable, "-P", "-m", "trainer.generate_main", str(folder.path)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            check=True,
            timeout=120,
        )
        made.append((contents(folder), folder.journal_path.read_bytes()))
    assert made[0] == made[1]


def test_a_killed_set_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole = shop_plan(tmp_path, "whole")
    plan = whole.read_plan()
    sets = []
    for name, kills in (("quiet", ()), ("killed", (3, 14, 22))):
        workspace: Workspace = create_workspace(tmp_path / name)
        folder = start_set(workspace, plan)
        for lines in kills:
            _wait_for_lines(folder, lines)
            identity = folder.identity()
            assert identity is not None
            os.kill(identity.pid, signal.SIGKILL)
            _wait(lambda folder=folder: folder.standing().state != "running")
            if folder.standing().state == "interrupted":
                resume_set(workspace, folder)
        assert wait_for(folder).state == "finished"
        assert resume_set(workspace, folder).standing().state == "finished"  # nothing is done twice
        sets.append((contents(folder), folder.journal_path.read_bytes()))
        assert [one.path for one in known_sets(workspace)] == [folder.path]
        with pytest.raises(GenerationError, match=r"there is no set of tasks 'other'\. The newest: made"):
            find_set(workspace, "other")
        with pytest.raises(GenerationError, match=r"there is a set 'made' already\. Go on with it"):
            start_set(workspace, plan)
    assert sets[0] == sets[1]


def _wait_for_lines(folder: SetFolder, lines: int) -> None:
    def written() -> bool:
        if not folder.journal_path.exists():
            return False
        return folder.journal_path.read_bytes().count(b"\n") >= lines or folder.standing().state != "running"

    _wait(written)


def _wait(condition: Any) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not come to this in time"
        time.sleep(0.005)


def test_the_commands_make_list_and_show_a_set(here: Here, tmp_path: Path) -> None:
    made = here("generate", *settings(tmp_path), "--count", "5", "--name", "shopping", "--json")
    document = json.loads(made.out)
    assert (document["kept"], document["answers"], document["state"]) == (5, ["total"], "finished")
    assert "shopping: " in made.err, "what it does; a phase that is over at once may go unseen"
    rows = [json.loads(line) for line in Path(document["files"]["tasks"]).read_text().splitlines()]
    assert all(row.keys() == {"prompt", "total", "branch", "notes"} for row in rows)
    shown = json.loads(here("show", "--limit", "2", "--json").out)
    assert [one["row"] for one in shown["tasks"]] == rows[:2]
    assert shown["tasks"][0]["reference"][-1]["tool"] == "pay"
    assert json.loads(here("list", "--json").out)["sets"][0]["kept"] == 5
    text = here("show").out
    assert "template 'Buy {0} pieces of {1} and pay.'" in text
    assert f"--set generated_tasks={document['files']['tasks']}" in text


def test_ctrl_c_keeps_what_was_done(tmp_path: Path) -> None:
    arguments = ["tasks", "generate", "--env", "lookup", "--count", "2000", "--originals", "40", "--name", "long"]
    process = subprocess.Popen(
        command(*arguments, "--workspace", str(tmp_path / "workspace")),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    folder = SetFolder(tmp_path / "workspace" / "tasks" / "long")
    _wait(lambda: folder.journal_path.exists() and folder.journal_path.read_bytes().count(b"\n") > 3)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "tasks generate --resume long" in errors
    assert folder.standing().state == "interrupted"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--explorer", "magic"), "unknown explorer 'magic'. Allowed: scripted, policy"),
        (("--env", "calculatr"), "Did you mean calculator"),
        (("--env", "lookup", "--explorer", "policy"), "the policy explorer needs a model"),
        (("--env", "lookup", "--model", "tiny"), "--model is for the policy explorer"),
        (("--run", "r1", "--env", "lookup"), "give --run, or --env"),
        (("--env", "lookup", "--set", "env=calculator"), "contradict each other"),
        (("--env", "lookup", "--name", "../x"), "is not a name of a set"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_starts(
    here: Here, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = here("generate", *arguments)
    assert done.code == 1
    assert message in done.err
    assert not (tmp_path / "workspace").exists()


def test_a_failure_is_told_by_the_environments_own_words(here: Here, tmp_path: Path) -> None:
    done = here("generate", *settings(tmp_path, "Broken"))
    assert done.code == 1
    assert "RuntimeError: the shop is closed" in done.err
    assert json.loads(here("list", "--json").out)["sets"][0]["state"] == "failed"


@pytest.mark.slow
def test_a_run_trains_on_originals_and_what_a_policy_made_of_them(tmp_path: Path) -> None:
    """Tasks by the bundled model, then a short GRPO run on eight of them and eight originals."""
    made = mcp_evo(
        tmp_path, "tasks", "generate", "--env", "calculator", "--explorer", "policy", "--model", "tiny",
        "--count", "10", "--originals", "16", "--set", "threads=1", "--json",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    document = json.loads(made.stdout)
    assert document["found_by"].keys() == {"policy"}
    wanted = {
        "generated_tasks": document["files"]["tasks"], "problems": 16, "batch_size": 4, "num_generations": 4,
        "epochs": 1, "test_problems": 8, "validation_problems": 8, "validate_every": 0, "threads": 1, "device": "cpu",
    }  # fmt: skip
    pairs = [word for name, value in wanted.items() for word in ("--set", f"{name}={value}")]
    done = mcp_evo(tmp_path, "train", "--set", "env=calculator", *pairs, "--json")
    assert done.returncode == 0, done.stderr
    run = find_run(Workspace(tmp_path / "workspace"), "latest")
    mixture = (run.document.model_extra or {})["generated_tasks"]
    assert (mixture["generated"], mixture["originals"]) == (8, 8)
    assert run.document.provenance["generated_tasks"]["source"] == "set"
    ours = {json.loads(line)["prompt"] for line in Path(wanted["generated_tasks"]).read_text().splitlines()}
    episodes = [line for step in run.directory.episode_steps() for line in run.directory.episodes(step)]
    assert len(episodes) == 64  # one epoch: 16 problems, four attempts each
    assert sum(line["prompt"] in ours for line in episodes) == 32
    text = "\n".join(report_lines(build_report(run.directory)))
    assert f"training problems: 8 generated and 8 original, from {wanted['generated_tasks']}" in text
