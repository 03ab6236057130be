"""The pool's file locked, damaged, gone, on a full disk: a typed problem, nothing lost, and work goes on afterwards."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pool_helpers import lesson

from trainer.experience.config import open_source
from trainer.experience.manager import ExperienceConfig
from trainer.experience.pool import ExperiencePool, pool_path
from trainer.experience.problems import PoolError, ProblemKind, of_sqlite
from trainer.experience.records import Counters
from trainer.experience.run_pool import RunPool
from trainer.experience.source import STEP_WAIT_S, PoolSource
from trainer.experience.store import PoolStore
from trainer.runs.workspace import create_workspace


def source_of(path: Path) -> PoolSource:
    return PoolSource(lambda: ExperiencePool(path), path.stem, write_wait_s=0.1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    with ExperiencePool(path, create=True) as pool:
        pool.add(lesson("Adding x and y", "use calculate", id="adding"))
    return path


def test_a_locked_file_is_a_value_and_counts_are_written_later(path: Path) -> None:
    source = source_of(path)
    assert source.retrieve("Adding 3 and 4").ids == ("adding",)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    problem = source.record_use("adding", True)
    assert problem is not None
    assert problem.kind is ProblemKind.LOCKED
    assert problem.retryable
    results, problem = source.add([lesson("Sorting", "compare in lower case", id="sorting")])
    assert results == []
    assert problem is not None
    assert source.retrieve("Adding 3 and 4").ids == ("adding",)  # reading goes on
    assert source.waiting == 2
    other.execute("ROLLBACK")
    other.close()
    assert source.flush() is None
    assert source.waiting == 0
    assert source.problems == {ProblemKind.LOCKED: 2}
    source.close()
    with ExperiencePool(path) as pool:
        assert pool.find("adding").counters == Counters(retrieved=2, used=1, won=1)
        assert pool.find("sorting").content == "compare in lower case"


def test_an_exclusively_locked_file_cannot_be_read_and_that_is_a_value(path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN IMMEDIATE")
    source = PoolSource(lambda: ExperiencePool(path), "a")
    script = (
        "import sys; from pathlib import Path; import trainer.experience.store as s\n"
        "from trainer.experience.problems import PoolError\n"
        "try: s.PoolStore(Path(sys.argv[1]), wait_s=0.1)\n"
        "except PoolError as e: print(e.problem.kind)"
    )
    told = subprocess.run([sys.executable, "-P", "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "locked"
    other.close()
    assert source.retrieve("Adding 3 and 4").ids == ("adding",)
    source.close()


def test_a_step_does_not_wait_long_for_a_file_that_somebody_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = create_workspace(tmp_path)
    path = pool_path(workspace.root, "a")
    with ExperiencePool(path, create=True) as pool:
        pool.add(lesson("Adding x and y", "use calculate", id="adding"))
    waited: list[float] = []
    original = PoolStore.__init__

    def noted(self: PoolStore, *arguments: Any, wait_s: float, **named: Any) -> None:
        waited.append(wait_s)
        original(self, *arguments, wait_s=min(wait_s, 0.1), **named)

    monkeypatch.setattr(PoolStore, "__init__", noted)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    settings = ExperienceConfig.model_validate({"preset": "existing_train", "pool": "a"})
    (workspace.runs / "r").mkdir(parents=True, exist_ok=True)
    run, source = RunPool(settings, workspace.runs / "r", "f"), open_source(workspace, "a")
    for found in (run.lessons("Adding 3 and 4", 3, trials=True), source.retrieve("Adding 3 and 4")):
        assert found.problem is not None
        assert found.problem.kind is ProblemKind.LOCKED
    assert waited == [STEP_WAIT_S, STEP_WAIT_S]
    other.close()
    for found in (run.lessons("Adding 3 and 4", 3, trials=True), source.retrieve("Adding 3 and 4")):
        assert found.problem is None
    run.close()
    source.close()


@pytest.mark.parametrize(("free", "kind"), [(4096, ProblemKind.DISK_FULL), (10**9, ProblemKind.IO)])
def test_an_error_of_the_disk_without_space_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, kind: ProblemKind
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(total=10**10, used=0, free=free))
    found = of_sqlite(sqlite3.OperationalError("disk I/O error"), tmp_path / "a.db").problem
    assert found.kind is kind
    assert of_sqlite(sqlite3.OperationalError("disk I/O error"), tmp_path / "gone" / "a.db").problem.kind is kind


def damage_header(path: Path) -> None:
    path.write_bytes(b"this is no database, it is a text" * 200)


def damage_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:] = os.urandom(len(data) - 100)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("damage", [damage_header, damage_pages])
def test_a_damaged_file_is_left_alone_and_told(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    before = path.read_bytes()
    source = source_of(path)
    found = source.retrieve("Adding 3 and 4")
    assert found.hits == ()
    assert found.problem is not None
    assert found.problem.kind is ProblemKind.CORRUPT
    assert "experience import" in found.problem.say
    assert source.record_use("adding", True) is not None
    assert path.read_bytes() == before
    with pytest.raises(PoolError, match="left as it is"):
        ExperiencePool(path, create=True)
    assert path.read_bytes() == before


def test_a_pool_that_comes_back_is_used_again(path: Path, tmp_path: Path) -> None:
    source = source_of(tmp_path / "later.db")
    found = source.retrieve("Adding 3 and 4")
    assert found.problem is not None
    assert found.problem.kind is ProblemKind.MISSING
    assert "experience init later" in found.problem.say
    assert source.open_now() is not None
    path.rename(tmp_path / "later.db")
    assert source.open_now() is None
    assert source.retrieve("Adding 3 and 4").ids == ("adding",)
    source.close()


def test_a_later_format_is_refused(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(PoolError, match="later version") as caught:
        ExperiencePool(path)
    assert caught.value.problem.kind is ProblemKind.NEWER


def test_a_full_file_loses_nothing(path: Path) -> None:
    source = source_of(path)
    assert source.retrieve("Adding 3 and 4").ids == ("adding",)
    store = source._opened().store
    pages = store.rows("PRAGMA page_count")[0][0]
    store.rows(f"PRAGMA max_page_count = {pages}")
    added, problem = source.add([lesson(f"Case {n} of it", "word " * 200, id=f"c{n}") for n in range(30)])
    assert problem is not None
    assert problem.kind is ProblemKind.DISK_FULL
    assert "free some space" in problem.say
    assert source.waiting == 30 - len(added) + 1
    assert source.retrieve("Adding 3 and 4").ids == ("adding",)
    store.rows("PRAGMA max_page_count = 1000000")
    assert source.flush() is None
    source.close()
    with ExperiencePool(path) as pool:
        assert pool.store.size() == 31
        assert pool.find("adding").counters.retrieved == 2
        assert pool.store.check() is None


_FULL = """
import resource, signal, sys
from pathlib import Path
from trainer.experience.pool import ExperiencePool
from trainer.experience.problems import PoolError
from trainer.experience.records import ExperienceRecord
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
pool = ExperiencePool(Path(sys.argv[1]))
size = 300_000
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
kept = 0
try:
    for number in range(1000):
        pool.add(ExperienceRecord(f"Case {number} of somebody", "word " * 200))
        kept += 1
except PoolError as error:
    print(kept, error.problem.kind)
"""


def test_a_file_that_may_not_grow_keeps_all_that_was_confirmed(path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-P", "-c", _FULL, str(path)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert told[1] in ("disk_full", "io")
    with ExperiencePool(path) as pool:
        assert pool.store.size() == int(told[0]) + 1
        assert pool.store.check() is None


_KILLED = """
import os, sys
from pathlib import Path
from trainer.experience.pool import ExperiencePool
from trainer.experience.records import ExperienceRecord
pool = ExperiencePool(Path(sys.argv[1]))
for number in range(20):
    pool.add(ExperienceRecord(f"Case {number} of somebody", "do it"))
print("ready", flush=True)
with pool.store.changing():
    pool._insert(ExperienceRecord("half", "done"), b"\\0" * 512)
    os._exit(9)
"""


def test_a_killed_writer_leaves_whole_transactions(path: Path) -> None:
    subprocess.run([sys.executable, "-P", "-c", _KILLED, str(path)], capture_output=True, check=False)
    with ExperiencePool(path) as pool:
        assert pool.store.size() == 21
        assert pool.search("half", 5, statuses=()) == ()
        assert pool.store.check() is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_file_that_cannot_be_written(path: Path) -> None:
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        source = source_of(path)
        assert source.record_use("adding", True) is not None
        assert source.last_problem is not None
        assert source.last_problem.kind is ProblemKind.READ_ONLY
    finally:
        path.parent.chmod(0o700)
