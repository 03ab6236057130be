"""Installing compiled skills into a client's skills folder, for instance `.claude/skills`.

`.mcp-evo-installed.json` in that folder lists every file we wrote with its SHA-256. A file that differs from what we
wrote was edited by hand, and a folder that is not on the list is somebody else's: neither is touched without --force.
"""

import difflib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp_server.cli.context import CommandError
from skill_bank.files import read_json, write_bytes_atomic, write_json_atomic

MANIFEST = ".mcp-evo-installed.json"

SHOWN_LINES = 12
"""Lines of a difference shown in a refusal."""


@dataclass(frozen=True)
class Installed:
    """What an installation did."""

    written: tuple[str, ...]
    unchanged: tuple[str, ...]


def install_skills(folders: dict[str, Path], to: Path, *, force: bool = False) -> Installed:
    """Copies each compiled skill folder to `to/<skill>/`. Raises CommandError before anything is written."""
    target = to.expanduser().absolute()
    known = _manifest(target)
    wanted = {name: _files(folder) for name, folder in folders.items()}
    objections = [] if force else _objections(target, known, wanted)
    if objections:
        raise CommandError("nothing was installed.\n" + "\n".join(objections) + "\nUse --force to overwrite.")
    written: list[str] = []
    unchanged: list[str] = []
    for name, files in wanted.items():
        changed = [file for file, data in files.items() if _read(target / name / file) != data]
        stale = [file for file in known.get(name, {}) if file not in files]
        for file in changed:
            (target / name / file).parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomic(target / name / file, files[file])
        for file in stale:
            (target / name / file).unlink(missing_ok=True)
        known[name] = {file: _hash(data) for file, data in files.items()}
        (written if changed or stale else unchanged).append(name)
    target.mkdir(parents=True, exist_ok=True)
    write_json_atomic(target / MANIFEST, {"schema_version": 1, "skills": known})
    return Installed(tuple(written), tuple(unchanged))


def _manifest(target: Path) -> dict[str, dict[str, str]]:
    try:
        document: Any = read_json(target / MANIFEST)
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise CommandError(f"{error}: remove it to install anew with --force.") from error
    skills = document.get("skills") if isinstance(document, dict) else None
    return dict(skills) if isinstance(skills, dict) else {}


def _files(folder: Path) -> dict[str, bytes]:
    """Path inside the skill's folder → content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _objections(target: Path, known: dict[str, dict[str, str]], wanted: dict[str, dict[str, bytes]]) -> list[str]:
    """Files on the way that are not as we wrote them."""
    found = []
    for name, files in wanted.items():
        if (target / name).is_symlink():
            found.append(f"{target / name} is a link")
            continue
        for file, data in files.items():
            path = target / name / file
            there = _read(path)
            if there is None or there == data or _hash(there) == known.get(name, {}).get(file):
                continue
            why = "was edited by hand" if file in known.get(name, {}) else "was not written by mcp-evo"
            found.append(f"{path} {why}:\n{_difference(there, data)}")
    return found


def _difference(there: bytes, wanted: bytes) -> str:
    old = there.decode("utf-8", errors="replace").splitlines()
    new = wanted.decode("utf-8", errors="replace").splitlines()
    lines = list(difflib.unified_diff(old, new, "there", "compiled", n=1, lineterm=""))
    more = "" if len(lines) <= SHOWN_LINES else f"\n  … {len(lines) - SHOWN_LINES} more lines"
    return "\n".join(f"  {line}" for line in lines[:SHOWN_LINES]) + more
