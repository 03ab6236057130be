"""Packages on disk: a folder or a file that is all new or untouched, and nobody else's work replaced.

A plugin's folder holds `.mcp-evo-files.json`, the SHA-256 of every file that was written. A folder is replaced only
where it holds these files, as they were written, and no others.
"""

import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skill_bank.files import write_bytes_atomic

RECORD = ".mcp-evo-files.json"


class WriteError(ValueError):
    """A place that is not written to: says why and what to do. Nothing was changed."""


def write_folder(target: Path, files: Mapping[str, bytes]) -> bool:
    """Makes `target` hold exactly `files` and their record; False: it did already. Raises WriteError."""
    there = _contents(target)
    record = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())}
    wanted = {**files, RECORD: json.dumps(record, indent=1).encode() + b"\n"}
    if there == wanted:
        return False
    _refuse_others_work(target, there)
    parent = target.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix=".mcp-evo-new-") as name:
            fresh = Path(name) / "fresh"
            for path, data in wanted.items():
                place = fresh / path
                place.parent.mkdir(parents=True, exist_ok=True)
                write_bytes_atomic(place, data, flushed=False)  # made anew where it is lost
            if target.exists():
                os.replace(target, Path(name) / "old")  # goes with the temporary folder
            try:
                os.replace(fresh, target)
            except OSError:
                if (Path(name) / "old").exists():
                    os.replace(Path(name) / "old", target)
                raise
    except OSError as error:
        raise WriteError(f"{target} cannot be written: {error.strerror or error}") from error
    return True


def _contents(target: Path) -> dict[str, bytes]:
    """Path below `target` → content; empty where there is nothing. Raises WriteError for what is no folder of files."""
    if target.is_symlink():
        raise WriteError(f"{target} is a link: name the folder itself")
    if not target.exists():
        return {}
    if not target.is_dir():
        raise WriteError(f"{target} is no folder: name another one")
    found: dict[str, bytes] = {}
    for path in sorted(target.rglob("*")):
        name = path.relative_to(target).as_posix()
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            raise WriteError(f"{path} is a link or no file, so nothing of ours: name another folder")
        if path.is_file():
            found[name] = path.read_bytes()
    return found


def _refuse_others_work(target: Path, there: Mapping[str, bytes]) -> None:
    if not there:
        return
    try:
        record: Any = json.loads(there.get(RECORD, b"{}"))
    except ValueError:
        record = {}
    known = record if isinstance(record, dict) else {}
    for name, data in there.items():
        if name != RECORD and known.get(name) != hashlib.sha256(data).hexdigest():
            what = "was edited" if name in known else "was not written by mcp-evo"
            raise WriteError(
                f"{target / name} {what}: nothing was changed. Name another folder, or move that file away"
            )


def write_bundle(target: Path, data: bytes, product: str) -> bool:
    """Writes an archive; False: it is there already. Raises WriteError where the file is no bundle of ours."""
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise WriteError(f"{target} is a link or no file: name another one")
    if target.exists():
        before = target.read_bytes()
        if before == data:
            return False
        if _product_of(before) != product:
            raise WriteError(f"{target} is there and no bundle of {product}: name another file, or move it away")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(target, data)
    except OSError as error:
        raise WriteError(f"{target} cannot be written: {error.strerror or error}") from error
    return True


def _product_of(data: bytes) -> str | None:
    """The name in a bundle's manifest; None where this is no bundle."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as packed:
            manifest = json.loads(packed.read("manifest.json"))
    except (zipfile.BadZipFile, KeyError, ValueError, OSError):
        return None
    name = manifest.get("name") if isinstance(manifest, dict) else None
    return name if isinstance(name, str) else None
