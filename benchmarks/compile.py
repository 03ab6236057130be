"""How long the skill bank takes to compile: 1,000 skills of 20 patches each, from nothing and after one change.

    python -P benchmarks/compile.py [--skills 1000] [--patches 20] [--rounds 5] [--json]

A bank is written to a temporary folder and flushed; then, each round in a process of its own:

- `cold_s`: parse, check, assemble and merge everything, nothing kept from before; to memory.
- `out_s`: the same into an empty folder (`--out`), with every file flushed to the disk.
- `live_s`: the same into the bank's compiled folder, with a version record and the kept sources of every skill.
- `changed_one_s`: after one patch file changed, compile its skill again in the process that compiled the bank before
  (the server's case): what changed is found by content, everything else is taken from before, the folder is exchanged
  and the version recorded. The median of five changes.
- `changed_all_s`: the same, asking for the whole bank: every output folder and history is looked at, too.
- `stat_s`: the peer of these two: asking the system once for the time of each source file, and nothing else. What is
  more is ours.

The figure of a phase is the median over the rounds; `fastest` and `slowest` say how far they spread.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skill_bank.bank import SkillBank

TARGETS = {"cold_s": 3.0, "changed_all_s": 0.1, "changed_one_s": 0.1}
"""Seconds at 1,000 skills of 20 patches."""

PHASES = ("cold_s", "out_s", "live_s", "changed_one_s", "changed_all_s", "stat_s")

CHANGES = 5
"""Of a phase and round."""

SCHEMA = """schema_version: 1
keys:
  rate:
    type: mapping
    order: [min, default, max]
    fields:
      default: {type: number, above: 0, max: 1}
      min: {type: number, above: 0, max: 1}
      max: {type: number, above: 0, max: 1}
  size: {type: integer, min: 1, max: 1000}
"""
SECTIONS = ("intro", "procedure", "ranges", "failures", "report")
PARAGRAPH = (
    "Read the answer of the tool before you go on. Where it names a field that you did not set, say where the value "
    "came from. Ask the user when two readings of a request would lead to different runs.\n"
)


def write_bank(root: Path, skills: int, patches: int) -> None:
    """A bank in which every fifth patch sets policy and every patch but the first two depends on an earlier one."""
    lines = ['version: "1.0"', "groups:", "  g:", "    description: benchmark", "    skills:"]
    for number in range(skills):
        name = f"skill-{number:04d}"
        lines.append(f"      {name}: {{output: x}}")
        folder = root / "g" / name
        (folder / "patches").mkdir(parents=True)
        parts = [f"---\nname: {name}\ndescription: Skill {number} of a benchmark.\n---\n"]
        for section in SECTIONS:
            block = ""
            if section == "ranges":
                block = "\n{{policy.rate}}\n\n```yaml policy\nrate:\n  - {default: 1e-5, min: 1e-6, max: 1e-2}\n"
                block += '  - {when: {params: "<10M"}, default: 3e-4}\nsize: 4\n```\n'
            text = f"## {section.title()}\n\n{PARAGRAPH}\n- {PARAGRAPH}{block}"
            parts.append(f"<!-- section:{section} -->\n{text}<!-- /section:{section} -->\n")
        (folder / "base.md").write_text("\n".join(parts), encoding="utf-8")
        (folder / "policy_schema.yaml").write_text(SCHEMA, encoding="utf-8")
        ids = [f"{index:03d}-change" for index in range(patches)]
        listed = "".join(f"  - '{one}'\n" for one in ids)
        (folder / "manifest.yaml").write_text(f"base: base.md\nactive:\n{listed}disabled: []\nprofiles: {{}}\n")
        for index, one in enumerate(ids):
            (folder / "patches" / f"{one}.md").write_text(patch_text(one, index, number), encoding="utf-8")
    (root / "bank.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def patch_text(name: str, index: int, skill: int, note: str = "") -> str:
    """One patch file."""
    action = ("append", "append", "prepend", "insert_after")[index % 4]
    needs = f"depends_on: ['{index // 2:03d}-change']\n" if index > 1 else ""
    policy = index % 5 == 4
    scope = 'scope: {params: "<10M"}\n' if policy else ""
    body = f"{PARAGRAPH}\nPatch {index} of skill {skill}.{note}\n"
    if policy:
        body += f'\n```yaml policy\nrate:\n  - {{when: {{params: "<10M"}}, default: {index + 1}e-4}}\n```\n'
    section = SECTIONS[index % len(SECTIONS)]
    return (
        f"---\nid: {name}\ntarget_section: {section}\naction: {action}\ndescription: Change {index}.\n"
        f"source: benchmark\ncreated: '2026-01-01'\n{needs}{scope}status: active\n---\n\n{body}"
    )


def measure(root: Path) -> dict[str, Any]:
    """One round, in this process."""
    from skill_bank.bank import SkillBank

    found: dict[str, Any] = {"cold_s": _fresh(root, "bank.compile('all', dry_run=True)")}
    with tempfile.TemporaryDirectory(dir=root.parent) as out:
        found["out_s"] = _fresh(root, f"bank.compile('all', out={str(Path(out) / 'out')!r})")
    bank = SkillBank(root)
    start = time.perf_counter()
    report = bank.compile()
    found["live_s"] = time.perf_counter() - start
    found["bytes"] = sum(len(data) for one in report.skills.values() for data in one.files.values())
    os.sync()  # what was just written goes to the disk now, and not beside what is measured next
    time.sleep(0.2)  # so that no file is too young to be believed unchanged
    bank.compile()
    folders = sorted((root / "g").glob("skill-*/patches"))
    patches = itertools.cycle(folders[:: len(folders) // (2 * CHANGES) or 1])
    for name in ("changed_all_s", "changed_one_s"):
        found[name] = statistics.median(_changed(bank, next(patches), name) for _ in range(CHANGES))
    found["stat_s"] = statistics.median(_stats(root) for _ in range(CHANGES))
    return found


def _changed(bank: "SkillBank", patches: Path, phase: str) -> float:
    """Seconds of compiling after the last patch of a folder has changed."""
    skill = patches.parent.name
    last = sorted(patches.glob("*.md"))[-1]
    text = patch_text(last.stem, int(last.stem[:3]), int(skill[-4:]), f" Changed {time.time_ns()}.")
    last.write_text(text, encoding="utf-8")
    start = time.perf_counter()
    report = bank.compile("all" if phase == "changed_all_s" else skill)
    seconds = time.perf_counter() - start
    if list(report.written) != [skill]:
        raise SystemExit(f"{phase}: compiled {report.written} after a change of {skill}")
    return seconds


def _stats(root: Path) -> float:
    """Seconds of one `stat` of every source file, each folder opened once."""
    folders = [one for skill in (root / "g").iterdir() for one in (skill, skill / "patches")]
    names = [(str(one), os.listdir(one)) for one in folders]
    start = time.perf_counter()
    for folder, inside in names:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        for name in inside:
            os.stat(name, dir_fd=handle)
        os.close(handle)
    return time.perf_counter() - start


def _fresh(root: Path, call: str) -> float:
    """Seconds of a call on `bank` in a new process, without its start."""
    code = (
        "import sys, time; from skill_bank.bank import SkillBank; bank = SkillBank(sys.argv[1]); "
        f"start = time.perf_counter(); {call}; print(time.perf_counter() - start)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code, str(root)], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skills", type=int, default=1000)
    parser.add_argument("--patches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="One JSON document on stdout.")
    parser.add_argument("--round-in", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.round_in is not None:
        print(json.dumps(measure(options.round_in)))
        return
    rounds: list[dict[str, Any]] = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "bank"
            root.mkdir()
            write_bank(root, options.skills, options.patches)
            os.sync()
            command = [sys.executable, "-P", __file__, "--round-in", str(root)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rounds.append(json.loads(done.stdout))
    document: dict[str, Any] = {"skills": options.skills, "patches": options.patches, "rounds": options.rounds}
    for name in PHASES:
        values = sorted(one[name] for one in rounds)
        document[name] = statistics.median(values)
        document.setdefault("fastest", {})[name] = values[0]
        document.setdefault("slowest", {})[name] = values[-1]
    ratios = {name: [one[name] / one["stat_s"] for one in rounds] for name in ("changed_all_s", "changed_one_s")}
    document["against_stat"] = {name: statistics.median(values) for name, values in ratios.items()}
    document["bytes"] = rounds[0]["bytes"]
    full = options.skills >= 1000 and options.patches >= 20
    document["targets"] = {name: {"at_most_s": most, "met": document[name] <= most} for name, most in TARGETS.items()}
    if not full:
        document.pop("targets")
    if options.json:
        print(json.dumps(document))
        return
    print(f"{options.skills} skills of {options.patches} patches, median of {options.rounds} rounds")
    for name in PHASES:
        goal = f"  (target {TARGETS[name]:g} s)" if name in TARGETS and full else ""
        spread = f"{document['fastest'][name]:.3f}–{document['slowest'][name]:.3f}"
        against = document["against_stat"].get(name)
        ratio = "" if against is None else f"  {against:.2f} times the bare stats"
        print(f"  {name:14} {document[name]:8.3f} s  ({spread}){goal}{ratio}")


if __name__ == "__main__":
    main()
