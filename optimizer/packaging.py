"""What goes into packages that record something: a run, or some rounds; and the evidence of a trial for a promotion.

Read from the workspace as it is; what should be there and is not is listed under `facts.missing`, never made up.
Weights and checkpoints stay where they are: the package names them.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from optimizer.capture.prefilter import suspicious
from optimizer.home import Home
from optimizer.ids import check_id
from optimizer.redact import Rules, rules_of
from optimizer.round_store import RoundStore
from optimizer.round_types import Round
from optimizer.trial.folder import TrialFolder
from optimizer.trial.types import TrialVerdict
from skill_bank.files import encoded, read_json
from skill_bank.packages.types import Draft, Evidence, Kind, PackageError, PackageManifest, Redactor, check_name
from skill_bank.types import BankError
from skill_bank.versions import VersionStore

RUN_FILES = (
    "run.json", "config.json", "metrics.jsonl", "events.jsonl", "perf.json", "analysis.json", "monitor.json",
    "failure.json", "alerts.jsonl", "worker.log", "worker.log.1",
)  # fmt: skip
"""Files of a run that a task package holds where they are there, besides `episodes/`."""
LEFT = ("model", "best", "checkpoints")
"""Folders of a run that a package only names."""
NEEDED = ("run.json", "config.json", "metrics.jsonl")
_PIECE = 32 * 1024
"""Bytes of a JSON-lines file that are looked at together."""
_NUMBER = re.compile(r"(\d+)\Z")


def redactor_of(root: Path) -> Redactor:
    """Takes secrets out of what is packed, by the standard rules and those of the workspace.

    JSON by its fields, everything else as text; what is not text stays as it is.
    """
    rules = rules_of(root)

    def clean(path: str, data: bytes) -> bytes:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return data
        if path.endswith(".jsonl"):
            return _clean_lines(rules, data)
        if path.endswith(".json"):
            return _clean_json(rules, data, compact=False)
        return encoded(rules.redact_text(text))

    return clean


def _clean_lines(rules: Rules, data: bytes) -> bytes:
    """JSON lines; pieces of the file that cannot hold a secret, which are nearly all, are kept without parsing them."""
    found: list[bytes] = []
    start = 0
    while start < len(data):
        end = data.find(b"\n", start + _PIECE) + 1 or len(data)
        piece = data[start:end]
        start = end
        if _may_hold_secrets(rules, piece):
            lines = piece.split(b"\n")
            piece = b"\n".join(
                _clean_json(rules, line, compact=True) if _may_hold_secrets(rules, line) else line for line in lines
            )
        found.append(piece)
    return b"".join(found)


def _may_hold_secrets(rules: Rules, data: bytes) -> bool:
    """The prefilter reads bytes as they are: own rules, and letters written as escapes, take the long way."""
    return bool(rules.patterns or rules.fields) or b"\\u" in data or suspicious(data)


def _clean_json(rules: Rules, data: bytes, *, compact: bool) -> bytes:
    if not data.strip():
        return data
    try:
        value = json.loads(data)
        found = rules.redact(value)
    except (ValueError, RecursionError):
        return encoded(rules.redact_text(data.decode("utf-8")))
    if found == value:
        return data
    separators = (",", ":") if compact else None
    text = json.dumps(found, ensure_ascii=False, indent=None if compact else 1, separators=separators)
    return encoded(text) + (b"" if compact else b"\n")


class _Gathered:
    """Files for a package, and what was not there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[str, bytes] = {}
        self.missing: list[str] = []

    def file(self, source: Path, path: str, *, needed: bool = False) -> None:
        """Takes a file; a link is not followed."""
        if source.is_file() and not source.is_symlink():
            self.files[path] = source.read_bytes()
        elif needed:
            self.missing.append(source.relative_to(self.root).as_posix())

    def folder(self, source: Path, path: str, *, needed: bool = False) -> None:
        """Takes the files below a folder but locks and what is being written."""
        before = len(self.files)
        for one in sorted(source.rglob("*")) if source.is_dir() and not source.is_symlink() else []:
            if not one.name.startswith(".") and not one.name.endswith((".lock", ".tmp")):
                self.file(one, f"{path}/{one.relative_to(source).as_posix()}")
        if needed and len(self.files) == before:
            self.missing.append(source.relative_to(self.root).as_posix())

    def skills(self, home: Home, versions: Mapping[str, str]) -> dict[str, str]:
        """Takes skills as they were in the versions that a document names; skill → digest."""
        store = VersionStore(home.bank.root / "versions")
        found: dict[str, str] = {}
        for skill, label in sorted(versions.items()):
            number = _NUMBER.search(label)
            try:
                record = store.get(skill, int(number[1]) if number is not None else -1)
                for path, digest in record.sources.items():
                    self.files[f"skills/source/{path}"] = store.content(digest)
                for path, digest in record.files.items():
                    self.files[f"skills/compiled/{skill}/{path}"] = store.content(digest)
            except BankError:
                self.missing.append(f"skill {skill} {label}")
                continue
            found[skill] = record.digest
        return found


def task_draft(home: Home, name: str, run_id: str, domain: str | None = None) -> Draft:
    """A run as a package to be. Raises PackageError if there is no such run or it still runs."""
    check_name(name, "package name")
    folder = home.workspace.runs / check_id(run_id, "run")
    if not (folder / "run.json").is_file():
        raise PackageError(f"there is no run {run_id!r} in {home.workspace.runs}. `mcp-evo runs list` names them.")
    document: dict[str, Any] = read_json(folder / "run.json")
    if document.get("state") not in ("finished", "failed", "stopped", "lost"):
        raise PackageError(f"run {run_id} is {document.get('state')}: pack it when it has ended.")
    gathered = _Gathered(home.root)
    _run(gathered, folder, "run", with_episodes=True)
    for report_id in home.reports.ids():
        if run_id in home.reports.read(report_id).runs:
            _report(gathered, home, report_id, "reports")
    skills = gathered.skills(home, document.get("skill_versions") or {})
    facts = {
        "run_id": run_id,
        "state": document.get("state"),
        "verdict": document.get("verdict"),
        "request": rules_of(home.root).redact(document.get("request")),
        "skill_versions": document.get("skill_versions") or {},
        "skill_digests": skills,
        "left_in_place": [one for one in LEFT if (folder / one).exists()],
        "missing": gathered.missing,
    }
    manifest = PackageManifest(kind=Kind.TASK, name=name, domain=domain, facts=facts)
    return Draft(manifest, gathered.files)


def _run(gathered: _Gathered, folder: Path, path: str, *, with_episodes: bool) -> None:
    for name in RUN_FILES:
        gathered.file(folder / name, f"{path}/{name}", needed=name in NEEDED)
    if with_episodes:
        gathered.folder(folder / "episodes", f"{path}/episodes", needed=True)


def _report(gathered: _Gathered, home: Home, report_id: str, path: str) -> None:
    found = sorted(home.reports.root.glob(f"*/{report_id}.*"))
    for one in found:
        gathered.file(one, f"{path}/{one.parent.name}/{one.name}")
    if not found:
        gathered.missing.append(f"reports/{report_id}")


def lineage_draft(home: Home, name: str, domain: str, first: int, last: int) -> Draft:
    """Rounds `first` to `last` (both included) as a package to be. Raises PackageError, RoundError."""
    check_name(name, "package name")
    check_name(domain, "domain")
    store = RoundStore(home.root)
    numbers = [one for one in store.numbers() if first <= one <= last]
    if not numbers:
        known = store.numbers()
        there = f"There are {known[0]} to {known[-1]}" if known else "There are none yet"
        raise PackageError(f"there is no round between {first} and {last}. {there}.")
    gathered = _Gathered(home.root)
    gathered.missing += [f"rounds/{one}" for one in range(first, last + 1) if one not in numbers]
    rounds = [store.read(number) for number in numbers]
    versions: dict[str, dict[str, str]] = {}
    sessions: dict[str, None] = {}
    for one in rounds:
        _round(gathered, home, store, one)
        sessions[one.evolution] = None
        if one.report_id is not None and one.report_id in home.reports.ids():
            sessions.update(dict.fromkeys(home.reports.read(one.report_id).sessions))
        versions[str(one.round)] = gathered.skills(home, one.skill_versions)
    for session in sessions:
        check_id(session, "session")
        gathered.file(home.trajectories.file(session), f"raw/{session}/events.jsonl", needed=True)
        found = sorted((home.trajectories.root / "segments").glob(f"*/{session}.jsonl"))
        for path in found:
            gathered.file(path, f"segments/{path.parent.name}/{session}.jsonl")
        if not found:
            gathered.missing.append(f"trajectories/segments/*/{session}.jsonl")
    facts = {
        "rounds": numbers,
        "runs": [one.run_id for one in rounds],
        "sessions": list(sessions),
        "promoted": [one.promoted for one in rounds if one.promoted is not None],
        "verdicts": {str(one.round): one.verdict for one in rounds},
        "skill_digests": versions,
        "missing": gathered.missing,
    }
    manifest = PackageManifest(kind=Kind.LINEAGE, name=name, domain=domain, facts=facts)
    return Draft(manifest, gathered.files)


def _round(gathered: _Gathered, home: Home, store: RoundStore, one: Round) -> None:
    gathered.file(store.path(one.round), f"rounds/{store.path(one.round).name}")
    gathered.file(store.root / f"{one.evolution}.json", f"rounds/{one.evolution}.json")
    _run(gathered, home.workspace.runs / one.run_id, f"runs/{one.run_id}", with_episodes=False)
    if one.report_id is not None:
        _report(gathered, home, one.report_id, "reports")
    for patch in dict.fromkeys(_named([*one.candidates, one.chosen, one.promoted])):
        gathered.folder(home.root / "patches" / patch, f"patches/{patch}", needed=True)
    if one.trial_id is not None:
        gathered.folder(home.trials / one.trial_id, f"trials/{one.trial_id}", needed=True)


def _named(values: Iterable[str | None]) -> list[str]:
    return [one for one in values if one is not None]


def trial_evidence(home: Home, trial_id: str, skills: Iterable[str]) -> Evidence:
    """A decided trial as a reason to promote. Raises PackageError unless it was better and about one of the skills."""
    folder = TrialFolder(home.trials / check_id(trial_id, "trial"))
    if not folder.exists:
        raise PackageError(f"there is no trial {trial_id!r} in {home.trials}.")
    spec, decision = folder.spec(), folder.decision()
    if decision is None:
        raise PackageError(f"trial {trial_id} has no verdict yet: wait for it, or promote with a review note.")
    if decision.verdict is not TrialVerdict.BETTER or decision.summary is None:
        raise PackageError(f"trial {trial_id} says {decision.verdict}: {decision.say} Only a better one promotes; "
                           "a reviewer may decide otherwise with a note (--review).")  # fmt: skip
    if spec.skill not in set(skills):
        raise PackageError(f"trial {trial_id} was about {spec.skill}, which the package does not hold.")
    return Evidence(
        kind="trial",
        reference=trial_id,
        note=f"{spec.patch_id} of {spec.skill}: {decision.say}",
        verdict=str(decision.verdict),
        effect=decision.summary.effect,
        ci95=decision.summary.interval,
        pairs=decision.summary.pairs,
        digest=spec.patched_digest,
    )
