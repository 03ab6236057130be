"""Documents about the experience pools: which there are, and their records with how well they do."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_server.dashboard.shaping import NotThere, Question, paged
from mcp_server.dashboard.source import Source

if TYPE_CHECKING:
    from trainer.experience.store import PoolStore

MAX_POOLS = 50

ALL = "all"


def pool_list(source: Source) -> dict[str, Any]:
    """All pools with how many records are offered, in quarantine and retired."""
    folder = source.workspace().root / "experience"
    paths = sorted(folder.glob("*.db")) if folder.is_dir() else []
    return {"pools": [_pool_row(path) for path in paths[:MAX_POOLS]], "total": len(paths)}


def _pool_row(path: Path) -> dict[str, Any]:
    from trainer.experience.problems import PoolError

    row: dict[str, Any] = {"pool": path.stem, "size_bytes": path.stat().st_size, "problem": None, "by_status": {}}
    try:
        store = _opened(path)
        try:
            row["by_status"] = dict(store.rows("SELECT status, count(*) FROM records GROUP BY status"))
        finally:
            store.close()
    except PoolError as error:
        row["problem"] = str(error)
    return row


def _opened(path: Path) -> "PoolStore":
    from trainer.experience.store import PoolStore

    return PoolStore(path, wait_s=2.0)


def pool_page(source: Source, name: str, question: Question) -> dict[str, Any]:
    """The records of a pool: those that were used most first, with uplift and its interval."""
    from mcp_server.experience import record_document
    from trainer.experience.pool import pool_path
    from trainer.experience.problems import ExperienceError, PoolError
    from trainer.experience.records import Status

    status = question.word("status", ALL, [ALL, *(one.value for one in Status)])
    try:
        path = pool_path(source.workspace().root, name)
    except ExperienceError as error:
        raise NotThere(str(error)) from error
    if not path.exists():
        raise NotThere(f"there is no experience pool {name[:64]!r}")
    try:
        store = _opened(path)
        try:
            found = list(store.iterate(tuple(Status) if status == ALL else (Status(status),)))
        finally:
            store.close()
    except PoolError as error:
        raise NotThere(str(error)) from error
    found.sort(key=lambda one: (-one.counters.used, -one.counters.retrieved, one.created))
    shown, page = paged(found, question)
    return {"pool": name, "status": status, "records": [record_document(one, whole=True) for one in shown], **page}
