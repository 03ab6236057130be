"""Random banks: the compiler against an independent model, hash seeds, and damage."""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from skill_bank_builder import SkillFiles, patch_text, tree, write_bank

from skill_bank import bank as bank_module
from skill_bank.bank import SkillBank
from skill_bank.types import BankError

NAMES = ("alpha", "beta", "gamma", "delta")
WORDS = (
    "Watch the reward.",
    "- a list\n- of two",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "中文说明。",
    "```\ncode {x}\n```",
)


class Plan:
    """A random skill that is valid by construction, with what it must compile to."""

    def __init__(self, chance: random.Random) -> None:
        self.sections = {name: chance.choice(WORDS) for name in NAMES[: chance.randint(1, 4)]}
        self.patches: dict[str, str] = {}
        self.needs: dict[str, list[str]] = {}
        self.spec: dict[str, tuple[str, str, str]] = {}
        touching: dict[str, list[str]] = {name: [] for name in self.sections}
        for number in range(chance.randint(0, 7)):
            name = f"{number:03d}-{chance.choice('abc')}"
            section = chance.choice(list(self.sections))
            action = chance.choice(["append", "prepend", "insert_after", "replace"])
            needs = [one for one in self.patches if chance.random() < 0.25]
            fields = {}
            if action == "replace":
                # It has to come behind, and take over, whatever touches the section before it.
                fields["supersedes"] = f"[{', '.join(touching[section])}]"
                needs = list(dict.fromkeys([*needs, *touching[section]]))
            else:
                # Behind every replace of the section, or that one would wipe it.
                needs += [one for one in touching[section] if self.spec[one][1] == "replace" and one not in needs]
            if needs:
                fields["depends_on"] = f"[{', '.join(needs)}]"
            body = f"{chance.choice(WORDS)}\n\n({name})"
            size = chance.choice(["", f"\n\n```yaml policy\nsize: {number + 1}\n```"])
            fields["scope"] = "all"
            self.patches[name] = patch_text(name, section, body + size, action=action, **fields)
            self.needs[name] = needs
            self.spec[name] = (section, action, body)
            if action != "insert_after":
                touching[section].append(name)
        self.active = list(self.patches)
        chance.shuffle(self.active)

    def files(self) -> SkillFiles:
        return SkillFiles(self.sections, self.patches, self.active, head="# Head")

    def expected(self) -> str:
        """By a model that knows nothing of the compiler: scan the manifest for the first patch that may apply."""
        done: list[str] = []
        while len(done) < len(self.active):
            done.append(next(one for one in self.active if one not in done and set(self.needs[one]) <= set(done)))
        inside = {name: [text] for name, text in self.sections.items()}
        behind: dict[str, list[str]] = {name: [] for name in self.sections}
        for one in done:
            section, action, body = self.spec[one]
            if action == "append":
                inside[section].append(body)
            elif action == "prepend":
                inside[section].insert(0, body)
            elif action == "replace":
                inside[section] = [body]
            else:
                behind[section].append(body)
        parts = ["# Head"]
        for name in self.sections:
            parts += inside[name] + behind[name]
        return "---\nname: s\ndescription: Does s.\n---\n\n" + "\n\n".join(parts) + "\n"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_random_skills_compile_to_what_the_model_says(seed: int) -> None:
    plan = Plan(random.Random(seed))
    with tempfile.TemporaryDirectory() as folder:
        bank = SkillBank(write_bank(Path(folder), {"s": plan.files()}))
        built = bank.compile("s", dry_run=True).skills["s"]
        assert built.files["SKILL.md"].decode() == plan.expected()
        assert bank.compile("s", dry_run=True).skills["s"].digest == built.digest


SCRIPT = """
import sys
from pathlib import Path
from skill_bank.bank import SkillBank
for folder in sorted(Path(sys.argv[1]).iterdir()):
    bank = SkillBank(folder)
    for name, one in bank.compile(dry_run=True).skills.items():
        print(folder.name, name, one.digest, *one.patches)
    for problem in bank.check():
        print(problem)
"""


def test_bytes_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    for seed in range(40):
        chance = random.Random(seed)
        write_bank(tmp_path / f"bank-{seed:02d}", {"s": Plan(chance).files()})
    said = []
    for seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-P", "-c", SCRIPT, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(bank_module.__file__).parent.parent)},
        )
        said.append(done.stdout)
    assert said[0].count("\n") >= 40
    assert said[0] == said[1] == said[2]


def damage(chance: random.Random, data: bytes) -> bytes:
    """One random change of a text: a line lost, doubled or swapped, or bytes replaced."""
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    kind = chance.randrange(5)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[at])
    elif kind == 2:
        other = chance.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3:
        lines[at] = lines[at][: len(lines[at]) // 2]
    else:
        position = chance.randrange(len(data) + 1)
        return (
            data[:position] + bytes(chance.choice(b"\x00\xff:-[]{}<>!`#\r\n'\"a1") for _ in range(3)) + data[position:]
        )
    return b"\n".join(lines)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_damage_compiles_or_is_refused_and_never_leaves_a_part(seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = write_bank(Path(folder), {"s": Plan(chance).files()})
        bank = SkillBank(root)
        bank.compile()
        sources = [path for path in root.rglob("*") if path.suffix in (".md", ".yaml") and "compiled" not in path.parts]
        path = chance.choice(sorted(sources))
        path.write_bytes(damage(chance, path.read_bytes()))
        before = tree(root)
        problems = bank.check()
        if problems:
            with pytest.raises(BankError):
                bank.compile()
            assert tree(root) == before
            assert all(one.message and one.fix and one.line >= 0 for one in problems)
        else:
            report = bank.compile()
            for name, built in report.skills.items():
                assert tree(bank.compiled_folder(name)) == dict(built.files)


@pytest.mark.parametrize("seed", range(3))
def test_rollback_through_a_random_history_is_exact(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    plan = Plan(chance)
    files = plan.files()
    files.active = []
    files.patches = {name: text.replace("status: active", "status: staged") for name, text in plan.patches.items()}
    bank = SkillBank(write_bank(tmp_path, {"s": files}))
    bank.compile()
    outputs = [tree(bank.compiled_folder("s"))]
    for name in plan.patches:  # by construction each depends only on earlier ones
        bank.activate("s", name)
        outputs.append(tree(bank.compiled_folder("s")))
    order = list(range(len(outputs)))
    chance.shuffle(order)
    for index in order:
        bank.rollback("s", index + 1)
        assert tree(bank.compiled_folder("s")) == outputs[index]
        assert bank.check() == ()
