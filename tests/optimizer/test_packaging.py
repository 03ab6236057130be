"""What goes into packages of runs and rounds, and a trial as a reason to promote. On the fake worker."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from optimizer.evolve import evolve, new_request
from optimizer.home import Home
from optimizer.packaging import lineage_draft, redactor_of, task_draft, trial_evidence
from optimizer.round_types import Answer
from optimizer.trial.pooled import PooledArms
from skill_bank.packages.lifecycle import build, draft_of_bank, promote
from skill_bank.packages.store import PackageStore
from skill_bank.packages.types import Kind, PackageError
from trainer.config import TrainingConfig
from trainer.runs.launch import LocalLauncher
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState

SECRET = "sk-" + "ant-" + "a1B2c3" * 6


def make_run(home: Home, state: RunState = RunState.FINISHED) -> RunDirectory:
    directory = RunDirectory(home.workspace.runs / "run-1")
    version = home.bank.history("rllm-config")[-1]
    document = RunDocument(
        run_id="run-1", state=state, created_at=0, request=f"train with {SECRET}",
        skill_versions={"rllm-config": f"v{version.number}", "rllm-gone": "v9"},
    )  # fmt: skip
    directory.create(document, TrainingConfig())
    directory.append_metrics({"step": 1, "reward_mean": 0.5})
    directory.append_event("started", note=f"token {SECRET}")
    directory.log_path.write_text(f"api_key={SECRET}\nfine\n", encoding="utf-8")
    directory.episodes_folder.mkdir(exist_ok=True)
    line = json.dumps({"prompt": SECRET, "reward": 1.0})
    directory.episode_path(1).write_text(line + '\n{"prompt": "clean",  "reward": 0}\n', encoding="utf-8")
    directory.model_folder.mkdir(exist_ok=True)
    (directory.model_folder / "model.safetensors").write_bytes(b"\0" * 1000)
    (directory.path / "link.json").symlink_to("/etc/passwd")
    return directory


def test_a_run_is_packed_without_secrets_and_says_what_was_missing(home: Home) -> None:
    make_run(home)
    store = PackageStore(home.root / "packages")
    entry, new = store.add(task_draft(home, "calc", "run-1", "math"), redactor_of(home.root))
    assert (new, entry.label) == (True, "task:math:calc@1")
    package = store.open(entry.label)
    assert {"run/run.json", "run/config.json", "run/metrics.jsonl", "run/worker.log"} <= package.files.keys()
    assert "run/episodes/step-000001.jsonl" in package.files
    assert not any("model.safetensors" in path or "link" in path for path in package.files)
    assert not any(SECRET.encode() in data for data in package.files.values())
    assert SECRET not in package.manifest.model_dump_json()
    episodes = package.files["run/episodes/step-000001.jsonl"].split(b"\n")
    assert json.loads(episodes[0])["reward"] == 1.0
    assert episodes[1] == b'{"prompt": "clean",  "reward": 0}', "what holds no secret stays byte for byte"
    redacted = {one.path for one in package.manifest.contents if one.redacted}
    assert {"run/run.json", "run/events.jsonl", "run/worker.log", "run/episodes/step-000001.jsonl"} <= redacted
    record = home.bank.history("rllm-config")[-1]
    assert package.manifest.facts["skill_digests"] == {"rllm-config": record.digest}
    assert package.files["skills/compiled/rllm-config/SKILL.md"] == home.bank.load_compiled("rllm-config").encode()
    assert "skills/source/rllm/rllm-config/base.md" in package.files
    assert package.manifest.facts["missing"] == ["skill rllm-gone v9"]
    assert package.manifest.facts["left_in_place"] == ["model"]
    assert store.add(task_draft(home, "calc", "run-1", "math"), redactor_of(home.root)) == (entry, False)


def test_only_a_run_that_has_ended_is_packed(home: Home) -> None:
    with pytest.raises(PackageError, match="there is no run"):
        task_draft(home, "calc", "run-1")
    make_run(home, RunState.RUNNING)
    with pytest.raises(PackageError, match="pack it when it has ended"):
        task_draft(home, "calc", "run-1")


def test_rounds_are_packed_whole_and_their_trial_promotes(
    home: Home, launcher: LocalLauncher, runners: Callable[[Path, bool], PooledArms]
) -> None:
    with pytest.raises(PackageError, match="no round between 1 and 2"):
        lineage_draft(home, "first", "math", 1, 2)
    say_yes = Answer("approve", "unattended")
    text = "train the tiny calculator agent on 64 mixed problems, seed 1"
    request = new_request(home, text, evolution="evolve-1", rounds=2, profile="original", seed=5, plan="quick")
    evolve(home, request, lambda *_: say_yes, lambda one: None, launcher=launcher, runners=runners)
    store = PackageStore(home.root / "packages")
    entry, _ = store.add(lineage_draft(home, "first", "math", 1, 3), redactor_of(home.root))
    package = store.open(entry.label)
    facts = package.manifest.facts
    (patch,) = facts["promoted"]
    trial = json.loads(package.files["rounds/round-000001.json"])["trial_id"]
    kinds = {path.split("/")[0] for path in package.files}
    assert kinds == {"rounds", "runs", "reports", "raw", "segments", "patches", "trials", "skills"}
    assert {f"patches/{patch}/patch.json", f"trials/{trial}/verdict.json", f"trials/{trial}/pairs.jsonl"} <= set(
        package.files
    )
    assert package.files["raw/evolve-1/events.jsonl"] == home.trajectories.file("evolve-1").read_bytes()
    assert facts["rounds"] == [1, 2]
    assert facts["missing"] == ["rounds/3"]
    assert entry.kind is Kind.LINEAGE
    # the trial as a reason
    build(store, draft_of_bank(home.bank, "base"), redactor_of(home.root))
    evidence = trial_evidence(home, trial, store.find("stable:base").skills)
    assert (evidence.verdict, evidence.reference) == ("better", trial)
    assert evidence.effect is not None
    assert evidence.effect > 0
    promoted, _ = promote(store, "stable:base", evidence, redactor_of(home.root), domain="math")
    assert promoted.evidence == (evidence,)
    with pytest.raises(PackageError, match="which the package does not hold"):
        trial_evidence(home, trial, ["rllm-run"])
    with pytest.raises(PackageError, match="there is no trial"):
        trial_evidence(home, "trial-none", ["rllm-config"])
    verdict = home.trials / trial / "verdict.json"
    document = json.loads(verdict.read_text(encoding="utf-8"))
    verdict.write_text(json.dumps({**document, "verdict": "inconclusive"}), encoding="utf-8")
    with pytest.raises(PackageError, match="Only a better one promotes"):
        trial_evidence(home, trial, ["rllm-config"])
    verdict.unlink()
    with pytest.raises(PackageError, match="no verdict yet"):
        trial_evidence(home, trial, ["rllm-config"])


def test_long_files_are_cleaned_line_by_line_and_kept_where_nothing_is_secret(home: Home) -> None:
    plain = [json.dumps({"step": step, "text": "what is 3 + 4?"}) for step in range(4000)]
    escaped = '{"step": 0, "\\u0070assword": "hunter2hunter2"}'
    lines = [*plain[:2000], json.dumps({"text": f"use {SECRET}"}), escaped, *plain[2000:]]
    data = ("\n".join(lines) + "\n").encode()
    found = redactor_of(home.root)("run/episodes/step-000001.jsonl", data).decode().split("\n")
    assert found[:2000] + found[2002:] == [*plain, ""]
    assert SECRET not in found[2000]
    assert "hunter2" not in found[2001]
    assert redactor_of(home.root)("a.bin", b"\xff\xfe" + SECRET.encode()) == b"\xff\xfe" + SECRET.encode()
