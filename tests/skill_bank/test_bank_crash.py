"""A writer that dies: at every single step of it, and by SIGKILL at random moments."""

import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from skill_bank_builder import SkillFiles, patch_text, tree, write_bank

from skill_bank import swap
from skill_bank.bank import PatchText, SkillBank

CALLS = ("replace", "rename", "write", "unlink", "rmdir", "mkdir")
"""Calls of `os` that change the disk on the way of a change."""


@pytest.fixture
def bank(tmp_path: Path) -> SkillBank:
    patches = {name: patch_text(name, "one", f"Text of {name}.") for name in ("001-a", "002-b")}
    patches["002-b"] = patches["002-b"].replace("status: active", "status: staged")
    root = write_bank(
        tmp_path / "bank", {"s": SkillFiles({"one": "1\n\n```yaml policy\nsize: 4\n```"}, patches, ["001-a"])}
    )
    found = SkillBank(root)
    found.compile()
    return found


def dies_at(step: int, action: Callable[[], object]) -> bool:
    """Runs `action` in a child that dies, without any clean-up, right before its `step`-th change of the disk.

    Returns whether it died; False: it came to its end before.
    """
    child = os.fork()
    if child == 0:
        left = step

        def count() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os._exit(77)

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                count()
                return real(*arguments, **options)

            return call

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        swap._exchange = counted(swap._exchange)  # type: ignore[assignment]
        try:
            action()
        except BaseException:
            traceback.print_exc()
            os._exit(99)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 77), f"the action failed by itself: {code}"
    return code == 77


def check_every_step(bank: SkillBank, action: Callable[[SkillBank], object], expected: dict[str, bytes]) -> int:
    """Lets `action` die at each of its steps, on a fresh copy, and looks at what is left; returns the steps."""
    old = tree(bank.compiled_folder("s"))

    def act(root: Path) -> object:
        return action(SkillBank(root))  # made in the child: a lock is not inherited

    step = 0
    while True:
        step += 1
        copy = bank.root.parent / f"copy-{step}"
        subprocess.run(["cp", "-a", str(bank.root), str(copy)], check=True)
        died = dies_at(step, partial(act, copy))
        again = SkillBank(copy)
        left = tree(again.compiled_folder("s")) if again.compiled_folder("s").exists() else None
        assert left in (old, expected), f"step {step}: neither the old folder nor the new one"
        assert again.load_compiled("s").encode() == (left or {})["SKILL.md"]
        report = again.compile("s")  # the next writer finishes or takes back
        assert tree(again.compiled_folder("s")) in (old, expected)
        assert report.versions["s"].files.keys() == {"SKILL.md", "policy.json"}
        assert again.check() == ()
        assert again.version_files("s", report.versions["s"].number) == tree(again.compiled_folder("s"))
        leftovers = [path.name for path in (copy / "compiled").iterdir() if path.name.startswith((".new-", ".old-"))]
        assert leftovers == []
        assert not (copy / "rollback.json").exists()
        if not died:
            assert tree(again.compiled_folder("s")) == expected
            return step


def test_activation_dies_at_every_step(bank: SkillBank) -> None:
    twin = bank.root.parent / "twin"
    subprocess.run(["cp", "-a", str(bank.root), str(twin)], check=True)
    SkillBank(twin).activate("s", "002-b")
    expected = tree(SkillBank(twin).compiled_folder("s"))
    assert check_every_step(bank, lambda mine: mine.activate("s", "002-b"), expected) > 8


def test_compile_dies_at_every_step(bank: SkillBank) -> None:
    base = bank.root / "rllm" / "s" / "base.md"
    base.write_text(base.read_text().replace("\n1\n", "\nOther words.\n"))
    expected = dict(bank.compile("s", dry_run=True).skills["s"].files)
    assert b"Other words." in expected["SKILL.md"]
    assert check_every_step(bank, lambda mine: mine.compile(), expected) > 8


@pytest.mark.parametrize("can_exchange", [True, False])
def test_rollback_dies_at_every_step(bank: SkillBank, monkeypatch: pytest.MonkeyPatch, can_exchange: bool) -> None:
    first = tree(bank.compiled_folder("s"))
    bank.activate("s", "002-b")
    if not can_exchange:
        # Two renames leave a moment without the folder, which only the next writer mends: not tested for readers here.
        monkeypatch.setattr(swap, "_exchange", lambda one, other: False)
        assert bank.rollback("s", 1).number == 3
        assert tree(bank.compiled_folder("s")) == first
        return
    assert check_every_step(bank, lambda mine: mine.rollback("s", 1), first) > 8


def test_a_kill_between_two_renames_is_mended(bank: SkillBank) -> None:
    before = tree(bank.compiled_folder("s"))
    folder = bank.compiled_folder("s")
    folder.rename(folder.parent / ".old-s")
    (folder.parent / ".new-s-abc").mkdir()
    SkillBank(bank.root).add_patch(PatchText("s", "003-c", patch_text("003-c", "one", "C", status="staged")))
    assert tree(folder) == before
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".new")] == []


SCRIPT = """
import sys
from skill_bank.bank import SkillBank
bank = SkillBank(sys.argv[1])
print("ready", flush=True)
while True:
    bank.activate("s", "002-b")
    bank.rollback("s", 1)
"""


def test_sigkill_at_random_moments(bank: SkillBank) -> None:
    first = tree(bank.compiled_folder("s"))
    bank.activate("s", "002-b")
    second = tree(bank.compiled_folder("s"))
    source = Path(swap.__file__).parent.parent
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    for _ in range(8):
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", SCRIPT, str(bank.root)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(source)},
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        time.sleep(chance.uniform(0.0, 0.12))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert tree(bank.compiled_folder("s")) in (first, second), f"seed {seed}"
        again = SkillBank(bank.root)
        again.compile()
        assert tree(again.compiled_folder("s")) in (first, second), f"seed {seed}"
        numbers = [one.number for one in again.history("s")]
        assert numbers == list(range(1, len(numbers) + 1)), f"seed {seed}"
        latest = again.version("s")
        assert latest is not None
        assert again.version_files("s", latest.number) == tree(again.compiled_folder("s")), f"seed {seed}"
