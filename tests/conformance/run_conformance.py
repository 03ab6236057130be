"""The official conformance suite against `mcp-evo serve --http`, compared with `baseline.yaml`.

    python -P tests/conformance/run_conformance.py [--json] [--output FOLDER]

Installs the suite with npm where it is not in the cache yet. Exit codes: 0 as the baseline says, 1 otherwise, 3 the
suite cannot be had here (npm missing or unreachable).
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent))

from bearer_proxy import bearer_proxy
from npm_tools import CONFORMANCE, ToolsUnavailable
from served import ServeError, serving

BASELINE = Path(__file__).parent / "baseline.yaml"

VERSIONS = ("2025-11-25", "2026-07-28")

EXTENSION = "extension"
"""Stands for a version where a scenario is on no version's time line."""

TIMEOUT_S = 300.0
"""Of one run of the suite; it takes about ten seconds on two free cores."""

NEUTRAL = frozenset({"SUCCESS", "INFO"})
"""States of a check that is not amiss. SKIPPED is: nothing may be skipped that the baseline does not name."""


class Expect(StrEnum):
    """What a scenario has to give; see baseline.yaml."""

    PASS = "pass"
    VACUOUS = "vacuous"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True)
class Expected:
    """A line of the baseline."""

    versions: tuple[str, ...]
    expect: Expect
    why: str = ""
    not_ok: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.expect is not Expect.PASS and not self.why:
            raise ValueError("what does not count needs a reason (why)")
        if self.expect is Expect.NOT_APPLICABLE and not self.not_ok:
            raise ValueError("a scenario that is not applicable names the checks that cannot succeed (not_ok)")


@dataclass
class Outcome:
    """All runs together."""

    passed: dict[str, list[str]] = field(default_factory=dict)
    """Version → scenarios that count."""
    vacuous: dict[str, list[str]] = field(default_factory=dict)
    not_applicable: dict[str, list[str]] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)
    """Version → checks that succeeded in the scenarios that count."""
    problems: list[str] = field(default_factory=list)
    """What is not as the baseline says."""


def read_baseline(path: Path = BASELINE) -> dict[str, Expected]:
    """Scenario → what it has to give. Raises ValueError for a line that does not say everything."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = {}
    for name, line in document["scenarios"].items():
        known = {**line, "versions": tuple(line["versions"]), "expect": Expect(line["expect"])}
        known["not_ok"] = frozenset(line.get("not_ok", ()))
        try:
            found[name] = Expected(**known)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path.name}: {name}: {error}") from error
    return found


def judge(
    version: str, results: Mapping[str, Sequence[Mapping[str, Any]]], baseline: Mapping[str, Expected], into: Outcome
) -> None:
    """Enters the results of one version: scenario → its checks, each with `id` and `status`."""
    lists = {
        Expect.PASS: into.passed.setdefault(version, []),
        Expect.VACUOUS: into.vacuous.setdefault(version, []),
        Expect.NOT_APPLICABLE: into.not_applicable.setdefault(version, []),
    }
    wanted = {name for name, line in baseline.items() if version in line.versions}
    into.problems += [f"{version} {name}: did not run" for name in sorted(wanted - results.keys())]
    for name, checks in sorted(results.items()):
        if name not in wanted:
            into.problems.append(f"{version} {name}: the baseline does not name it")
            continue
        line = baseline[name]
        amiss = {str(one["id"]) for one in checks if one["status"] not in NEUTRAL}
        for one in checks:
            if one["status"] not in NEUTRAL and one["id"] not in line.not_ok:
                into.problems.append(f"{version} {name} {one['id']}: {one['status']}, {one.get('errorMessage', '')}")
        into.problems += [
            f"{version} {name} {check}: succeeds, which the baseline excludes" for check in sorted(line.not_ok - amiss)
        ]
        if not checks:
            into.problems.append(f"{version} {name}: checked nothing")
        lists[line.expect].append(name)
        if line.expect is Expect.PASS:
            succeeded = sum(1 for one in checks if one["status"] == "SUCCESS")
            into.checks[version] = into.checks.get(version, 0) + succeeded


def run(output: Path) -> Outcome:
    """Runs everything against one server. Raises ToolsUnavailable, ServeError."""
    CONFORMANCE.install()
    baseline = read_baseline()
    outcome = Outcome()
    with bearer_proxy() as proxy:
        hosts = (f"127.0.0.1:{proxy.port}", f"localhost:{proxy.port}")
        with serving(output / "project" / ".mcp-evo", output / "server.log", hosts) as server:
            proxy.target, proxy.token = ("127.0.0.1", server.port), server.token
            url = f"http://127.0.0.1:{proxy.port}/mcp"
            for version in VERSIONS:
                results = _suite(url, ["--suite", "all", "--spec-version", version], output / version)
                judge(version, results, baseline, outcome)
            skills: dict[str, list[dict[str, Any]]] = {}
            for name in [name for name, line in baseline.items() if EXTENSION in line.versions]:
                skills |= _suite(url, ["--scenario", name], output / EXTENSION / name)
            judge(EXTENSION, skills, baseline, outcome)
    return outcome


def _suite(url: str, arguments: list[str], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Scenario → its checks."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [*CONFORMANCE.command, "server", "--url", url, *arguments, "-o", str(folder)],
        env=CONFORMANCE.environment(folder),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    found = {}
    for path in sorted(folder.glob("server-*/checks.json")):
        name = path.parent.name.removeprefix("server-")[: -len("-2026-01-31T15-45-00-000Z")]
        found[name] = json.loads(path.read_text(encoding="utf-8"))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--output", type=Path, help="folder that keeps the suite's own results")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="mcp-evo-conformance-") as temporary:
        folder = (given.output or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            outcome = run(folder)
        except ToolsUnavailable as error:
            print(error, file=sys.stderr)
            return 3
        except ServeError as error:
            print(error, file=sys.stderr)
            return 1
    if given.json:
        print(json.dumps(asdict(outcome), indent=1))
    else:
        for version in (*VERSIONS, EXTENSION):
            passed, vacuous, rest = (
                one.get(version, []) for one in (outcome.passed, outcome.vacuous, outcome.not_applicable)
            )
            print(f"{version}: {len(passed)} scenarios pass ({outcome.checks.get(version, 0)} checks)")
            print(f"  not counted, because they pass whatever is answered: {', '.join(vacuous) or 'none'}")
            print(f"  not applicable (fixtures of the suite's own server): {len(rest)}")
        for problem in outcome.problems:
            print(f"NOT AS THE BASELINE SAYS: {problem}")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
