"""The record of a setup, beside the configuration: what was there before, what was written, which folders were made.

`.mcp-evo-setup.json` lists for each file the SHA-256 of what was written and the name of a backup that holds the bytes
of before (none where there was no file). It is what makes a removal exact; without it only our entries are taken out.
"""

import hashlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mcp_server.setup.files import read_bytes
from mcp_server.setup.types import SetupError
from skill_bank.files import encoded

NAME = ".mcp-evo-setup.json"
BACKUP_SUFFIX = ".before-mcp-evo"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class FileRecord:
    """One file that was written."""

    path: str
    written_sha256: str
    existed: bool
    exact: bool = True
    """What is restored is what was there before the first setup; False: somebody edited in between."""


@dataclass(frozen=True)
class Record:
    """Of one client and scope."""

    files: tuple[FileRecord, ...] = ()
    folders: tuple[str, ...] = ()
    """Folders that were made."""
    schema_version: int = field(default=SCHEMA_VERSION)

    def of(self, path: Path) -> FileRecord | None:
        """What is recorded of a file."""
        return next((one for one in self.files if one.path == str(path)), None)

    def to_bytes(self) -> bytes:
        """As it is stored."""
        import json

        return encoded(json.dumps(asdict(self), indent=1, ensure_ascii=False)) + b"\n"


def backup_of(path: Path) -> Path:
    """Where the bytes of before are kept."""
    return path.with_name(path.name + BACKUP_SUFFIX)


def read_record(path: Path) -> Record:
    """The record; an empty one where there is none. Raises SetupError for one that cannot be read."""
    data = read_bytes(path)
    if data is None:
        return Record()
    import json

    try:
        document: Any = json.loads(data)
        files = tuple(
            FileRecord(
                str(one["path"]), str(one["written_sha256"]), bool(one["existed"]), bool(one.get("exact", False))
            )
            for one in document["files"]
        )
        folders = tuple(str(one) for one in document.get("folders", []))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SetupError(
            f"{path} is damaged ({type(error).__name__}): delete it; --remove then takes out our entries only"
        ) from error
    return Record(files, folders)


def sha256(data: bytes | None) -> str:
    """Of a file's bytes; of none for a file that is not there."""
    return hashlib.sha256(data or b"").hexdigest()
