"""A setup or its removal, worked out before anything is written: which files change, and how."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mcp_server.setup.entries import hook_command, with_hooks, with_server, without_hooks, without_server
from mcp_server.setup.files import edited, read_bytes
from mcp_server.setup.record import FileRecord, Record, backup_of, read_record, sha256
from mcp_server.setup.targets import Targets
from mcp_server.setup.types import Action, Connection, FileChange

Edit = Callable[[str], str]


@dataclass(frozen=True)
class Plan:
    """What would be done."""

    changes: tuple[FileChange, ...]
    """Configuration files."""
    bookkeeping: tuple[FileChange, ...]
    """Backups and the record."""
    record_path: Path
    record: Record
    """After the changes."""
    folders: tuple[Path, ...] = ()
    """Folders that the setup had made; a removal takes them away where they are empty."""

    @property
    def changed(self) -> tuple[FileChange, ...]:
        """Configuration files that would not stay as they are."""
        return tuple(change for change in self.changes if change.action is not Action.UNCHANGED)


def plan_install(targets: Targets, connection: Connection) -> Plan:
    """Puts our entries in. Raises SetupError for a file that cannot be edited."""
    edits: list[tuple[Path, Edit, int]] = []
    if targets.hooks is not None:
        command = hook_command(connection)
        edits.append((targets.hooks, lambda text: with_hooks(text, command), targets.mode))
    if targets.servers is not None:
        typed = targets.typed_servers
        edits.append((targets.servers, lambda text: with_server(text, connection, typed=typed), targets.mode))
    record = read_record(targets.record)
    changes: list[FileChange] = []
    bookkeeping: list[FileChange] = []
    files = {one.path: one for one in record.files}
    for path, edit, mode in edits:
        before = read_bytes(path)
        change = FileChange(path, before, edited(path, before, edit), mode)
        changes.append(change)
        if change.action is Action.UNCHANGED:
            continue
        known = files.get(str(path))
        if known is None:
            files[str(path)] = FileRecord(str(path), sha256(change.after), before is not None)
            bookkeeping.append(_backup(path, before, mode))
        else:  # an update: what was there before the first setup stays what is restored, unless others edited since
            exact = known.exact and known.written_sha256 == sha256(before)
            files[str(path)] = replace(known, written_sha256=sha256(change.after), exact=exact)
    after = Record(tuple(files.values()), record.folders)
    return Plan(tuple(changes), tuple(bookkeeping), targets.record, after)


def _backup(path: Path, before: bytes | None, mode: int) -> FileChange:
    """A copy of the bytes of before, as private as the file itself."""
    place = backup_of(path)
    if before is not None:
        mode = path.stat().st_mode & 0o777
    return FileChange(place, read_bytes(place), before, mode)


def plan_remove(targets: Targets) -> Plan:
    """Takes our entries out, exactly where nobody edited since. Raises SetupError."""
    record = read_record(targets.record)
    changes: list[FileChange] = []
    bookkeeping: list[FileChange] = []
    for path, edit in ((targets.hooks, without_hooks), (targets.servers, without_server)):
        if path is None:
            continue
        before, known = read_bytes(path), record.of(path)
        place = backup_of(path)
        kept = read_bytes(place)
        untouched = known is not None and known.exact and sha256(before) == known.written_sha256
        if known is not None and untouched and (kept is not None or not known.existed):
            changes.append(FileChange(path, before, kept if known.existed else None, targets.mode, restores=True))
        else:
            after = edited(path, before, edit)
            if known is not None and not known.existed and after is not None and b"".join(after.split()) == b"{}":
                after = None  # we made the file, and nothing else came into it
            changes.append(FileChange(path, before, after, targets.mode))
        if known is not None and kept is not None:
            bookkeeping.append(FileChange(place, kept, None))
    data = read_bytes(targets.record)
    if data is not None:
        bookkeeping.append(FileChange(targets.record, data, None))
    ours = targets.folders()
    folders = tuple(Path(one) for one in record.folders if Path(one) in ours)
    return Plan(tuple(changes), tuple(bookkeeping), targets.record, Record(), folders)


def record_change(plan: Plan, made: Sequence[Path]) -> FileChange:
    """The record of what is done, with the folders that are made for it."""
    folders = tuple(dict.fromkeys((*plan.record.folders, *map(str, made))))
    record = replace(plan.record, folders=folders)
    return FileChange(plan.record_path, read_bytes(plan.record_path), record.to_bytes(), 0o600)


def difference(change: FileChange) -> str:
    """What would change, as a unified difference; empty where nothing does."""
    old, new = _lines(change.before), _lines(change.after)
    return "\n".join(
        difflib.unified_diff(
            old,
            new,
            "/dev/null" if change.before is None else str(change.path),
            "/dev/null" if change.after is None else str(change.path),
            n=2,
            lineterm="",
        )
    )


def _lines(data: bytes | None) -> list[str]:
    return [] if data is None else data.decode("utf-8", errors="replace").splitlines()
