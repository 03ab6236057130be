"""Hybrid search: BM25 over tokens and cosine over vectors, joined by reciprocal ranks.

**Text.** FTS5's BM25 over words, numbers, signs and CJK characters and pairs. A token that stands in more than
`COMMON` records says next to nothing (its inverse document frequency is near 0) and costs most of the time, so the
rarest tokens of a question are asked for until `BUDGET` records match; only where all are common, the newest records
that hold the rarest one are taken, unranked.

**Vectors.** Up to `EXACT` records: the cosine with each. Above, signatures first: one bit a random hyperplane, by the
sign of the projection (Charikar 2002; the share of differing bits estimates the angle), and the cosine with the
`SHORTLIST` records whose signatures are nearest. The matrix lies in memory in half precision and takes over what
changed before each search.

**Fusion** (Cormack, Clarke, Büttcher 2009): score = Σ over lists of w / (60 + rank), w = 1 for both. Ranks of a list
count down to `DEPTH`. Ties go to the record with the larger cosine, then to the older.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from trainer.experience.embed import Vectors
from trainer.experience.records import Status
from trainer.experience.store import PoolStore
from trainer.experience.tokens import FUNCTION_WORDS, index_form, tokens

RRF_K = 60
"""The constant of the paper; the order hardly depends on it."""
DEPTH = 50
COMMON = 4000
BUDGET = 1500
REMEMBERED = 200
"""Numbers of records above this are kept in memory (counting them takes time); smaller ones are counted each time."""
MAX_TERMS = 32
EXACT = 2000
"""Records up to which every cosine is computed: half a million multiplications, about a millisecond."""
SHORTLIST = 2000
BITS = 256
_STATUS_CODES = {status: code for code, status in enumerate(Status)}


class TextSearch:
    """BM25 over the pool's FTS5 table."""

    def __init__(self, store: PoolStore) -> None:
        self._store = store
        self._frequency: dict[str, int] = {}
        self._size = -1

    def search(self, query: str, statuses: Sequence[Status], limit: int = DEPTH) -> list[int]:
        """Numbers of records, best first. Raises PoolError."""
        chosen, ranked = self._choose(dict.fromkeys(tokens(query)))
        if not chosen:
            return []
        match = " OR ".join(f'"{index_form(term)}"' for term in chosen)
        wanted = f"r.status IN ({', '.join('?' * len(statuses))})"
        names = [status.value for status in statuses]
        if ranked:
            sql = (
                "SELECT r.number FROM texts JOIN records r ON r.number = texts.rowid "
                f"WHERE texts MATCH ? AND {wanted} ORDER BY bm25(texts), r.number LIMIT ?"
            )
            return [row[0] for row in self._store.rows(sql, [match, *names, limit])]
        # FTS5 walks backwards through rowids and stops; a join inside would visit every match
        sql = (
            "SELECT r.number FROM (SELECT rowid AS n FROM texts WHERE texts MATCH ? ORDER BY rowid DESC LIMIT ?) "
            f"JOIN records r ON r.number = n WHERE {wanted} ORDER BY n DESC LIMIT ?"
        )
        return [row[0] for row in self._store.rows(sql, [match, 8 * limit, *names, limit])]

    def _choose(self, terms: Iterable[str]) -> tuple[list[str], bool]:
        """The tokens to ask for, and whether their number of records allows ranking."""
        self._forget_if_grown()
        # function words find whatever; they are asked for only where a question has no other
        every = list(terms)
        ordered = ([term for term in every if term not in FUNCTION_WORDS] or every)[: 4 * MAX_TERMS]
        known = sorted((self._records_with(term), place, term) for place, term in enumerate(ordered))
        present = [(count, term) for count, _, term in known if count]
        chosen: list[str] = []
        matched = 0
        for count, term in present[:MAX_TERMS]:
            if count > COMMON or (chosen and matched + count > BUDGET):
                break
            chosen.append(term)
            matched += count
        if chosen or not present:
            return chosen, True
        return [present[0][1]], False

    def _records_with(self, term: str) -> int:
        """Number of records that hold the token, counted up to COMMON + 1."""
        if term not in self._frequency:
            found = self._store.rows(
                f"SELECT count(*) FROM (SELECT 1 FROM texts WHERE texts MATCH ? LIMIT {COMMON + 1})",
                (f'"{index_form(term)}"',),
            )
            if found[0][0] <= REMEMBERED:
                return int(found[0][0])
            self._frequency[term] = int(found[0][0])
        return self._frequency[term]

    def _forget_if_grown(self) -> None:
        """Frequencies only choose tokens: they may be a little old."""
        size = int(self._store.rows("SELECT coalesce(max(number), 0) FROM records")[0][0])
        if size > 1.05 * self._size + 20 or size < self._size or len(self._frequency) > 100_000:
            self._frequency.clear()
            self._size = size


class VectorIndex:
    """Vectors of one embedder in memory, kept up to date with the file."""

    def __init__(self, store: PoolStore, embedder: str, dimensions: int) -> None:
        self._store = store
        self._embedder = embedder
        self._planes: Vectors = np.random.default_rng(20_260).standard_normal((dimensions, BITS), dtype=np.float32)
        self._planes_turned = np.ascontiguousarray(self._planes.T)
        self._dimensions = dimensions
        self._empty()

    def _empty(self) -> None:
        self._used = 0
        self._numbers: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self._statuses: NDArray[np.int8] = np.zeros(0, dtype=np.int8)
        self._matrix: NDArray[np.float16] = np.zeros((0, self._dimensions), dtype=np.float16)
        self._signatures: list[NDArray[np.uint64]] = [np.zeros(0, dtype=np.uint64) for _ in range(BITS // 64)]
        """Word by word, each word of all records together: they are read in a stream."""
        self._place: dict[int, int] = {}
        self._seen_revision = 0
        self._seen_version: tuple[int, int] | None = None
        self._seen_deletions = 0

    def __len__(self) -> int:
        return self._used

    def refresh(self) -> None:
        """Takes over what changed since the last search. Raises PoolError."""
        version = self._store.version()
        if version == self._seen_version:
            return
        deletions = int(self._store.meta("deletions") or 0)
        if deletions != self._seen_deletions:
            self._empty()
            self._seen_deletions = deletions
        while True:
            rows = self._store.rows(
                "SELECT r.revision, r.number, r.status, v.vector FROM records r JOIN vectors v ON v.number = r.number "
                "WHERE r.revision > ? AND v.embedder = ? ORDER BY r.revision LIMIT 20000",
                (self._seen_revision, self._embedder),
            )
            self._take([row for row in rows if len(row[3]) == 2 * self._dimensions])
            if not rows:
                break
            self._seen_revision = rows[-1][0]
            if len(rows) < 20_000:
                break
        self._seen_version = version

    def _take(self, rows: Sequence[tuple[int, int, str, bytes]]) -> None:
        if not rows:
            return
        vectors = np.frombuffer(b"".join(row[3] for row in rows), dtype="<f2").reshape(len(rows), -1)
        places = np.empty(len(rows), dtype=np.int64)
        for i, (_, number, _, _) in enumerate(rows):
            if number not in self._place:
                self._place[number] = len(self._place)
            places[i] = self._place[number]
        self._grow(len(self._place))
        self._used = len(self._place)
        self._numbers[places] = [row[1] for row in rows]
        self._statuses[places] = [_STATUS_CODES[Status(row[2])] for row in rows]
        self._matrix[places] = vectors
        for words, column in zip(self._signatures, self._signed(vectors.astype(np.float32)).T, strict=True):
            words[places] = column

    def _grow(self, needed: int) -> None:
        room = len(self._numbers)
        if needed <= room:
            return
        size = max(needed, room + room // 2, 256)

        def larger(old: NDArray) -> NDArray:
            new = np.zeros((size, *old.shape[1:]), dtype=old.dtype)
            new[:room] = old
            return new

        self._numbers, self._statuses = larger(self._numbers), larger(self._statuses)
        self._matrix, self._signatures = larger(self._matrix), [larger(words) for words in self._signatures]

    def _signed(self, vectors: Vectors) -> NDArray[np.uint64]:
        return np.packbits(vectors @ self._planes > 0, axis=1).view(np.uint64)

    def _signature(self, vector: Vectors) -> NDArray[np.uint64]:
        return np.packbits(_products(self._planes_turned, vector) > 0).view(np.uint64)

    def search(
        self, vector: Vectors, statuses: Sequence[Status], limit: int = DEPTH, floor: float = 0.0, exact: bool = False
    ) -> list[tuple[int, float]]:
        """(number, cosine), best first, of those above `floor`. `exact`: no signatures, whatever the size."""
        used = self._used
        if used == 0 or not np.any(vector):
            return []
        allowed = np.zeros(len(_STATUS_CODES), dtype=bool)
        allowed[[_STATUS_CODES[status] for status in statuses]] = True
        mask = allowed[self._statuses[:used]]
        if exact or used <= EXACT:
            candidates = np.flatnonzero(mask)
        else:
            differing = np.zeros(used, dtype=np.int16)
            for words, own in zip(self._signatures, self._signature(vector), strict=True):
                differing += _ones(words[:used] ^ own)
            differing[~mask] = BITS + 1
            candidates = np.argpartition(differing, SHORTLIST)[:SHORTLIST]
            candidates = candidates[differing[candidates] <= BITS]
        if len(candidates) == 0:
            return []
        cosines = _products(self._matrix[candidates], vector)
        best = np.argpartition(-cosines, min(limit, len(cosines)) - 1)[:limit]
        order = sorted(best, key=lambda i: (-cosines[i], self._numbers[candidates[i]]))
        return [(int(self._numbers[candidates[i]]), float(cosines[i])) for i in order if cosines[i] > floor]

    def cosines(self, vector: Vectors, numbers: Sequence[int]) -> dict[int, float]:
        """Cosine of the vector with those records that have one."""
        known = [number for number in numbers if number in self._place]
        if not known:
            return {}
        values = _products(self._matrix[[self._place[number] for number in known]], vector)
        return dict(zip(known, (float(v) for v in values), strict=True))


def _products(rows: NDArray, vector: Vectors) -> Vectors:
    """Scalar products with each row, on this thread: threads of a BLAS library that wait for each other cost more than
    they save at this size, most of all beside a training that uses every core."""
    return np.einsum("ij,j->i", rows.astype(np.float32, copy=False), vector)


_NUMPY_2 = np.lib.NumpyVersion(np.__version__) >= "2.0.0"
_ONES = np.array([bin(i).count("1") for i in range(2**16)], dtype=np.uint8)


def _ones(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Number of set bits of each word."""
    if _NUMPY_2:
        return np.bitwise_count(words)
    return _ONES[words.view(np.uint16)].reshape(-1, 4).sum(axis=1, dtype=np.uint8)


def fuse(lists: Sequence[Sequence[int]], k: int = RRF_K) -> dict[int, float]:
    """Reciprocal rank fusion: Σ 1 / (k + rank), ranks from 1."""
    scores: dict[int, float] = {}
    for ranked in lists:
        for rank, number in enumerate(ranked, start=1):
            scores[number] = scores.get(number, 0.0) + 1.0 / (k + rank)
    return scores


def to_blob(vectors: Vectors) -> list[bytes]:
    """Rows in half precision, little endian: half the size, an error of a cosine below 0.001."""
    return [row.tobytes() for row in vectors.astype("<f2")]
