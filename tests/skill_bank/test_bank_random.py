"""Random banks of several skills: what does not matter changes no byte, what is outside a scope stays, and a writer
that is killed leaves the old or the new folder of each skill."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_banks import random_bank
from skill_bank_builder import SkillFiles, patch_text, tree, write_bank

from skill_bank import bank as bank_module
from skill_bank.bank import SkillBank
from skill_bank.policy import implies, matches

ROOT = Path(bank_module.__file__).parent.parent
QUICK = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def everything(root: Path) -> dict[str, dict[str, bytes]]:
    return {name: dict(one.files) for name, one in SkillBank(root).compile("all", dry_run=True).skills.items()}


@QUICK
@given(st.integers(0, 2**32))
def test_order_of_files_of_skills_and_of_asking_changes_nothing(seed: int) -> None:
    plan = random_bank(seed)
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        first = everything(write_bank(Path(folder) / "a", {name: one.files() for name, one in plan.items()}))
        shuffled = list(plan)
        chance.shuffle(shuffled)
        files = {name: plan[name].files() for name in shuffled}
        for one in files.values():
            names = list(one.patches)
            chance.shuffle(names)
            one.patches = {name: one.patches[name] for name in names}  # created on the disk in another order
        root = write_bank(Path(folder) / "b", files)
        assert everything(root) == first
        bank = SkillBank(root)
        for name in shuffled:
            assert dict(bank.compile(name, dry_run=True).skills[name].files) == first[name]
        out = Path(folder) / "out"
        bank.compile("all", out=out)
        assert {path.name: tree(path) for path in out.iterdir()} == first


@QUICK
@given(st.integers(0, 2**32))
def test_the_order_of_the_manifest_matters_only_among_patches_that_meet(seed: int) -> None:
    """Two patches of different sections, without a dependency, may change places."""
    chance = random.Random(seed)
    sections = dict.fromkeys(("alpha", "beta", "gamma"), "Text.")
    patches = {f"00{number}-{name}": patch_text(f"00{number}-{name}", name, f"Patch {number}.", action=action)
               for number, (name, action) in enumerate(zip(sections, chance.choices(
                   ["append", "prepend", "replace", "insert_after"], k=3), strict=True))}  # fmt: skip
    orders = [list(patches) for _ in range(2)]
    chance.shuffle(orders[1])
    built = []
    with tempfile.TemporaryDirectory() as folder:
        for number, order in enumerate(orders):
            files = SkillFiles(sections, patches, [f"'{one}'" for one in order])
            built.append(everything(write_bank(Path(folder) / str(number), {"s": files})))
    assert built[0] == built[1]


CONTEXTS: list[dict[str, Any]] = [
    {"params": params, "env": env, "lora": lora}
    for params in (None, 5 * 10**6, 500 * 10**6, 7 * 10**9)
    for env in (None, "calculator", "lookup", "gsm8k")
    for lora in (None, False, True)
]


@QUICK
@given(st.integers(0, 2**32))
def test_a_patch_changes_nothing_outside_its_scope(seed: int) -> None:
    plan = random_bank(seed, later=1)
    with tempfile.TemporaryDirectory() as folder:
        bank = SkillBank(write_bank(Path(folder), {name: one.files() for name, one in plan.items()}))
        for name, one in plan.items():
            (staged,) = one.staged
            scope = bank.patches(name)[staged].scope or {}
            without = bank.compile(name, dry_run=True).skills[name].policy
            policy = bank.compile(name, extra_patches=[staged], dry_run=True).skills[name].policy
            assert policy is not None
            assert without is not None
            for context in CONTEXTS:
                if scope and not matches(scope, context):
                    assert policy.resolve(context).to_json() == without.resolve(context).to_json()
            for rule in policy.assignments[len(without.assignments) :]:
                assert not scope or implies(rule.when, scope)


@QUICK
@given(st.integers(0, 2**32))
def test_a_prose_patch_changes_only_its_section(seed: int) -> None:
    chance = random.Random(seed)
    sections = {name: f"Text of {name}.\n\nMore of {name}." for name in ("alpha", "beta", "gamma")}
    target = chance.choice(list(sections))
    action = chance.choice(["append", "prepend", "replace", "insert_after"])
    patch = patch_text("a", target, "Words of the patch.", action=action)
    built = []
    with tempfile.TemporaryDirectory() as folder:
        for number, active in enumerate(([], ["a"])):
            files = SkillFiles(sections, {"a": patch}, active)
            built.append(everything(write_bank(Path(folder) / str(number), {"s": files}))["s"]["SKILL.md"].decode())
    for name, text in sections.items():
        if name != target or action != "replace":
            assert text in built[1]
    kept = [line for line in built[1].split("\n") if line and line != "Words of the patch."]
    gone = sections[target].split("\n") if action == "replace" else []
    assert kept == [line for line in built[0].split("\n") if line and line not in gone]


SCRIPT = """
import sys
from pathlib import Path
from skill_bank.bank import SkillBank
for folder in sorted(Path(sys.argv[1]).iterdir()):
    bank = SkillBank(folder)
    for name, one in bank.compile(dry_run=True).skills.items():
        print(folder.name, name, one.digest, *one.patches, *one.warnings)
    name = bank.skills()[0]
    if bank.source(name).manifest.active:
        folding = bank.squash(name, dry_run=True).folding
        print(folding.base, folding.manifest)
"""


def run_script(script: str, *arguments: str, seed: str = "0") -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-c", script, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_banks_of_several_skills_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    for seed in range(25):
        write_bank(tmp_path / f"bank-{seed:02d}", {name: one.files() for name, one in random_bank(seed).items()})
    said = [run_script(SCRIPT, str(tmp_path), seed=seed).communicate()[0] for seed in ("0", "7", "90210")]
    assert said[0].count("\n") > 50
    assert said[0] == said[1] == said[2]


COMPILE = """
import sys
from skill_bank.bank import SkillBank
bank = SkillBank(sys.argv[1])
print("ready", flush=True)
bank.compile(out=sys.argv[2] or None)
"""


@pytest.mark.parametrize("into", ["live", "out"])
def test_sigkill_while_a_whole_bank_compiles(tmp_path: Path, into: str) -> None:
    names = [f"s{number:02d}" for number in range(12)]
    root = write_bank(tmp_path / "bank", {name: SkillFiles({"one": "Old."}) for name in names})
    out = root / "compiled" if into == "live" else tmp_path / "out"
    argument = "" if into == "live" else str(out)
    SkillBank(root).compile(out=argument or None)
    old = {name: tree(out / name) for name in names}
    for name in names:
        path = root / "rllm" / name / "base.md"
        path.write_text(path.read_text().replace("Old.", "New."))
    new = {name: dict(one.files) for name, one in SkillBank(root).compile("all", dry_run=True).skills.items()}
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    for attempt in range(6):
        copy = tmp_path / f"copy-{attempt}"
        shutil.copytree(tmp_path / "bank", copy / "bank")
        if into == "out":
            shutil.copytree(out, copy / "out")
        folder = copy / "bank" / "compiled" if into == "live" else copy / "out"
        child = run_script(COMPILE, str(copy / "bank"), "" if into == "live" else str(folder))
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0.0, 0.08))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        for name in names:
            assert tree(folder / name) in (old[name], new[name]), f"seed {seed}: a part of {name}"
        bank = SkillBank(copy / "bank")
        bank.compile(out=None if into == "live" else folder)
        assert {name: tree(folder / name) for name in names} == new
        if into == "live":
            assert sorted(path.name for path in folder.iterdir()) == names
            for name in names:
                assert [one.number for one in bank.history(name)] == [1, 2]


def test_what_a_killed_writer_left_in_another_folder_goes_when_it_is_old(tmp_path: Path) -> None:
    root = write_bank(tmp_path / "bank", {"s": SkillFiles({"one": "First."})})
    out = tmp_path / "out"
    for name, age in ((".new-s-old", 3600), (".new-s-young", 0)):
        (out / name).mkdir(parents=True)
        stamp = time.time() - age
        os.utime(out / name, (stamp, stamp))
    SkillBank(root).compile(out=out)
    assert sorted(path.name for path in out.iterdir()) == [".new-s-young", "s"]


def test_a_clean_clone_compiles_to_the_shipped_output(tmp_path: Path) -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: a clone cannot be made")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "skill_bank/bank"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    assert len([one for one in listed if one.endswith("/base.md")]) == 15
    for name in filter(None, listed):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    bank = tmp_path / "skill_bank" / "bank"
    shipped = tree(bank / "compiled")
    shutil.rmtree(bank / "compiled")
    for seed in ("0", "31337"):
        out = tmp_path / f"out-{seed}"
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-P", "-m", "mcp_server.cli.main", "skills", "compile", "--all"]
        subprocess.run([*command, "--bank", str(bank), "--out", str(out)], check=True, env=environment, cwd=tmp_path)
        assert tree(out) == shipped
