"""One pool: finding, adding (with all its checks), evidence. Raises PoolError and ExperienceError.

Commands, tools and the distiller use it as it is; rollouts go through `source.PoolSource`, which never raises.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from trainer.experience.counters import DEFAULT_LIFECYCLE, LifecyclePolicy, decide, proven, tally
from trainer.experience.dedupe import Relation, compare, core, merged
from trainer.experience.embed import Embedder, HashedEmbedder
from trainer.experience.leaks import Guarded, LeakGuard
from trainer.experience.problems import ExperienceError, PoolError
from trainer.experience.records import SLOTTED, Counters, ExperienceRecord, Hit, Polarity, Status, Use
from trainer.experience.redaction import Redactor, redact_shapes
from trainer.experience.search import DEPTH, TextSearch, VectorIndex, fuse, to_blob
from trainer.experience.store import WAIT_S, PoolStore, text_key
from trainer.experience.tokens import literals, normalised, pieces
from trainer.experience.validation import checked
from trainer.runs.errors import WorkspaceError
from trainer.runs.workspace import check_id

OFFERED = (Status.ACTIVE,)
NEIGHBOURS = 12
"""Records that a new one is compared with: the nearest by text and by vector."""


class Outcome(StrEnum):
    """What became of a record that was added."""

    ADDED = "added"
    MERGED = "merged"
    """It was there already; its evidence was joined to the one that is."""
    CONTRADICTS = "contradicts"
    """Added to quarantine: another record says otherwise."""
    REFUSED = "refused"


@dataclass(frozen=True)
class Added:
    """What became of one record."""

    outcome: Outcome
    record: ExperienceRecord
    """As it is stored now."""
    reason: str = ""
    other: str | None = None
    """The record that it was merged into or contradicts."""


@dataclass(frozen=True)
class Moved:
    """A status that evidence changed."""

    record_id: str
    before: Status
    after: Status
    reason: str


def pool_path(root: Path, name: str) -> Path:
    """The file of a workspace's pool. Raises ExperienceError for what is no name."""
    try:
        return root / "experience" / f"{check_id(name, 'name of a pool')}.db"
    except WorkspaceError as error:
        raise ExperienceError(str(error)) from error


class ExperiencePool:
    """One pool of one name."""

    def __init__(
        self,
        path: Path,
        *,
        create: bool = False,
        embedder: Embedder | None = None,
        lifecycle: LifecyclePolicy = DEFAULT_LIFECYCLE,
        redact: Redactor = redact_shapes,
        embed_now: bool = True,
        wait_s: float = WAIT_S,
    ) -> None:
        """Opens the file. `embed_now`: computes vectors that this embedder did not make. `wait_s`: seconds for which
        a lock is waited for. Raises PoolError."""
        self.name = path.stem
        self.embedder: Embedder = HashedEmbedder() if embedder is None else embedder
        self.lifecycle = lifecycle
        self.redact = redact
        self.store = PoolStore(path, create=create, wait_s=wait_s)
        self._text = TextSearch(self.store)
        self._vectors = VectorIndex(self.store, self.embedder.id, self.embedder.dimensions)
        self._guard: tuple[int, LeakGuard] = (-1, LeakGuard())
        self.embedded = 0
        """Vectors that opening had to compute: the embedder had changed, or records came without."""
        if embed_now:
            try:
                self.embedded = self.embed_stale()
            except PoolError:
                self.close()
                raise

    def close(self) -> None:
        """Closes the file."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def embed_stale(self, batch: int = 500) -> int:
        """Computes the vectors that this embedder has not made yet; a batch is a transaction. Raises PoolError."""
        count = 0
        while rows := self.store.stale(self.embedder.id, batch):
            blobs = to_blob(self.embedder.embed([embedded_text(record) for _, record in rows]))
            self.store.set_vectors(self.embedder.id, {row[0]: blob for row, blob in zip(rows, blobs, strict=True)})
            count += len(rows)
        return count

    # ---- finding

    def search(
        self,
        query: str,
        k: int = 3,
        *,
        statuses: Sequence[Status] = OFFERED,
        polarities: Sequence[Polarity] | None = None,
        family: str | None = None,
        distinct: bool = True,
        min_similarity: float | None = None,
    ) -> tuple[Hit, ...]:
        """The `k` best records for a question (formula: `search`).

        `distinct`: of records that recommend the same (`dedupe.core`) for the same numbers and signs only the one that
        is proven best, else found first. `min_similarity`: hits below this cosine are left out. Raises PoolError.
        """
        if not query.strip() or k < 1:
            return ()
        self._vectors.refresh()
        depth = max(DEPTH, 4 * k)
        vector = self.embedder.embed([query])[0]
        by_text = self._text.search(query, statuses, depth)
        by_vector = self._vectors.search(vector, statuses, depth, self.embedder.noise)
        scores = fuse([by_text, [number for number, _ in by_vector]])
        cosines = self._vectors.cosines(vector, list(scores))
        ordered = sorted(scores, key=lambda n: (-scores[n], -cosines.get(n, 0.0), n))
        text_rank = {number: rank for rank, number in enumerate(by_text, start=1)}
        vector_rank = {number: rank for rank, (number, _) in enumerate(by_vector, start=1)}
        hits: dict[object, Hit] = {}
        asked = _numbers(query)
        for start in range(0, len(ordered), 2 * k + 8):
            part = ordered[start : start + 2 * k + 8]
            records = self.store.by_numbers(part)
            for number in part:
                record, cosine = records.get(number), cosines.get(number, float("nan"))
                if record is None or record.status not in statuses:
                    continue  # changed since the lists were made
                if polarities is not None and record.polarity not in polarities:
                    continue
                if family is not None and record.family not in ("", family):
                    continue
                if SLOTTED in record.tags and not _numbers(record.when_to_use) <= asked:
                    continue  # a recipe for other values
                if min_similarity is not None and not cosine >= min_similarity:
                    continue
                hit = Hit(record, scores[number], cosine, text_rank.get(number), vector_rank.get(number))
                same: object = (normalised(core(record.content)), literals(record.when_to_use)) if distinct else number
                if same not in hits or proven(record) > proven(hits[same].record):
                    hits[same] = hit  # in the place of the other one
            if len(hits) >= k:
                break
        return tuple(hits.values())[:k]

    # ---- adding

    def add(self, record: ExperienceRecord) -> Added:
        """Checks, redacts, guards against leaks, compares with what is there, stores: one transaction.

        Raises ExperienceError for a record that is refused, LeakError for one that tells an evaluation, PoolError.
        """
        clean = checked(record, self.redact).changed(pool=self.name)
        vector = to_blob(self.embedder.embed([embedded_text(clean)]))[0]
        with self.store.changing():
            self.guard().check(clean)
            for _, old in self._neighbours(clean):
                if old.status is Status.RETIRED:
                    if text_key(old) == text_key(clean):
                        raise ExperienceError(
                            f"record {old.id} says the same and was retired ({old.status_reason or 'by hand'}); what "
                            "evidence has refuted is not added again"
                        )
                    continue
                relation = compare(old, clean, self.embedder).relation
                if relation is Relation.DUPLICATE:
                    joined = merged(old, clean)
                    self.store.change(old.id, lambda _, joined=joined: joined)  # type: ignore[misc]
                    return Added(Outcome.MERGED, joined, f"record {old.id} says the same", old.id)
                if relation is Relation.CONTRADICTION:
                    reason = f"contradicts {old.id}; waits for evidence"
                    clean = clean.changed(status=Status.QUARANTINED, status_reason=reason, contradicts=(old.id,))
                    self._insert(clean, vector)
                    self.store.change(old.id, lambda o, new=clean.id: o.changed(contradicts=(*o.contradicts, new)))  # type: ignore[misc]
                    return Added(Outcome.CONTRADICTS, clean, reason, old.id)
            self._insert(clean, vector)
        return Added(Outcome.ADDED, clean)

    def add_all(self, records: Iterable[ExperienceRecord]) -> list[Added]:
        """`add` for each; what is refused is an outcome with its reason. Raises PoolError, with what was added kept."""
        results = []
        for record in records:
            try:
                results.append(self.add(record))
            except ExperienceError as error:
                results.append(Added(Outcome.REFUSED, record, str(error)))
        return results

    def insert_as_is(self, record: ExperienceRecord) -> None:
        """Stores a record unchanged and uncompared (import). Raises LeakError, PoolError, ValueError for a known id."""
        self.guard().check(record)
        self._insert(record, to_blob(self.embedder.embed([embedded_text(record)]))[0])

    def _insert(self, record: ExperienceRecord, vector: bytes) -> None:
        self.store.insert(record, vector, self.embedder.id)

    def _neighbours(self, record: ExperienceRecord) -> list[tuple[int, ExperienceRecord]]:
        """Records that may say the same or the opposite, those with equal texts first."""
        same = self.store.with_text(text_key(record))
        known = {number for number, _ in same}
        live = (Status.ACTIVE, Status.QUARANTINED)
        numbers = self._text.search(record.when_to_use, live, NEIGHBOURS)
        near = self.store.by_numbers([n for n in numbers if n not in known])
        return same + sorted(near.items())

    # ---- guarding

    def guard(self) -> LeakGuard:
        """What no record may hold. Raises PoolError."""
        count = self.store.guard_count()
        if count != self._guard[0]:
            self._guard = (count, LeakGuard(self.store.guards()))
        return self._guard[1]

    def protect(self, guarded: Iterable[Guarded]) -> list[str]:
        """Registers evaluation problems; records that hold one are retired. Returns their ids. Raises PoolError."""
        with self.store.changing():
            known = {(one.prompt, one.answer) for one in self.store.guards()}
            new = [one for one in guarded if (one.prompt, one.answer) not in known]
            if not new:
                return []
            self.store.add_guards(new)
            asked = {one.prompt for one in new}  # what was known in the same words belongs to them
            guard, told = LeakGuard(one for one in self.store.guards() if one.prompt in asked), []
            for record in list(self.store.iterate((Status.ACTIVE, Status.QUARANTINED))):
                reason = guard.leak(record)
                if reason is not None:
                    self.set_status(record.id, Status.RETIRED, reason)
                    told.append(record.id)
        return told

    # ---- evidence

    def find(self, record_id: str) -> ExperienceRecord:
        """The record of an id or its beginning. Raises ExperienceError, PoolError."""
        found = self.store.get(record_id)
        if found is None:
            ids = self.store.with_prefix(record_id) if record_id else []
            if len(ids) == 1:
                found = self.store.get(ids[0])
            if found is None:
                told = f"{', '.join(ids)} begin so" if ids else "`mcp-evo experience list` shows those there are"
                raise ExperienceError(f"pool {self.name} has no record {record_id!r}: {told}")
        return found[1]

    def set_status(self, record_id: str, status: Status, reason: str) -> ExperienceRecord:
        """Changes a status by hand or by evidence. Raises ExperienceError, PoolError."""
        changed = self.store.change(
            record_id, lambda old: old.changed(status=status, status_reason=reason, modified=time.time())
        )
        if changed is None:
            raise ExperienceError(f"pool {self.name} has no record {record_id!r}")
        return changed

    def record_uses(self, uses: Sequence[Use]) -> list[Moved]:
        """Counts what became of rollouts and moves the records whose evidence asks for it. Raises PoolError."""
        return self.count(tally(uses))

    def count(self, counters: Mapping[str, Counters]) -> list[Moved]:
        """Adds counters and settles the records concerned. Raises PoolError."""
        with self.store.changing():
            self.store.count(counters)
            return self.settle(counters)

    def settle(self, ids: Iterable[str] | None = None) -> list[Moved]:
        """Applies the life cycle's rules; None: to all records. A record that is promoted over one that it contradicts
        supersedes it. Raises PoolError."""
        moved: list[Moved] = []
        with self.store.changing():
            chosen = [record.id for record in self.store.iterate()] if ids is None else list(ids)
            for record_id in chosen:
                found = self.store.get(record_id)
                decision = None if found is None else decide(found[1], self.lifecycle)
                if found is None or decision is None:
                    continue
                before = found[1]
                self.set_status(record_id, decision.status, decision.reason)
                moved.append(Moved(record_id, before.status, decision.status, decision.reason))
                if decision.status is Status.ACTIVE:
                    moved += self._supersede(before)
        return moved

    def _supersede(self, winner: ExperienceRecord) -> list[Moved]:
        moved = []
        for other in winner.contradicts:
            found = self.store.get(other)
            if found is None or found[1].status is Status.RETIRED:
                continue
            reason = f"superseded by {winner.id}, which says otherwise and helped"
            self.set_status(other, Status.RETIRED, reason)
            moved.append(Moved(other, found[1].status, Status.RETIRED, reason))
            self.store.change(winner.id, lambda w, o=other: w.changed(supersedes=(*w.supersedes, o)))  # type: ignore[misc]
        return moved


def _numbers(text: str) -> set[str]:
    return {piece for kind, piece in pieces(normalised(text)) if kind == "number"}


def embedded_text(record: ExperienceRecord) -> str:
    """What the vector of a record stands for: the situation, where there is one."""
    return record.when_to_use or record.content
