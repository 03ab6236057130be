"""A ReMe 0.2 service as a source of experience, with the same interface as our own pool.

Versions: 0.2 has `/retrieve_task_memory` and its kin; in 0.4 they are gone (404), so `probe` refuses what is not 0.2
and says what to do. 0.3 answers alike, but ignores the workspace; who runs one says so (`version`) and is refused.

The question is the task's text. `metadata.memory_list` is preferred to the answer's text: its ids can be credited. The
service takes at most five memories a question. Deleting and counting on the service are unreliable in 0.2, so
`forget` names ids, and credit is sent but never read back.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.experience.http_json import DEFAULT_TIMEOUTS, HttpAnswer, Timeouts, request_json
from trainer.experience.problems import PoolError, PoolProblem, ProblemKind
from trainer.experience.records import ExperienceRecord, Hit, Retrieval, Use
from trainer.experience.reme import RemeFormatError, from_reme

DEFAULT_URL = "http://127.0.0.1:8002"
PINNED = "reme-ai>=0.2,<0.3"
MAX_SERVER_K = 5
SUPPORTED = ("0.2",)


@dataclass(frozen=True)
class Summary:
    """What the service made of attempts."""

    records: tuple[ExperienceRecord, ...]
    inserted: int
    deleted: int


@dataclass
class RemeSource:
    """`ExperienceSource` over HTTP. Methods of that interface answer problems as values; the others raise PoolError."""

    base_url: str = DEFAULT_URL
    workspace_id: str = "default"
    version: str | None = None
    """What the user says the service is; None: `probe` finds out. 0.3 needs saying, because it looks like 0.2."""
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    problems: dict[ProblemKind, int] = field(default_factory=dict)
    last_problem: PoolProblem | None = None
    _probed: bool = field(default=False, repr=False)
    _memories: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    """What was retrieved, by id: credit wants the whole memory."""
    _pending: list[Use] = field(default_factory=list, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def name(self) -> str:
        return f"{self.base_url}/{self.workspace_id}"

    def probe(self) -> str:
        """The version, once it is known to be usable. Raises PoolError."""
        if self.version is not None and not self.version.startswith(SUPPORTED):
            raise PoolError(ProblemKind.INCOMPATIBLE, f"reme.version {self.version} is not supported. {_ADVICE}")
        health = request_json("GET", self._url("health"), timeouts=self.timeouts)
        answer = request_json(
            "POST",
            self._url("retrieve_task_memory"),
            {"query": "ping", "top_k": 1, "workspace_id": "__probe__"},
            timeouts=self.timeouts,
        )
        if answer.status == 404:
            alive = "it is alive" if health.status == 200 else f"/health answers {health.status}"
            raise PoolError(
                ProblemKind.INCOMPATIBLE,
                f"{self.base_url} has no /retrieve_task_memory ({alive}): ReMe 0.4 or later, or no ReMe. {_ADVICE}",
            )
        self._checked("retrieve_task_memory", answer)
        self._probed = True
        return "0.2"

    def retrieve(self, query: str, k: int = 3) -> Retrieval:
        """The service's memories for a question, at most `k` and five."""
        started = time.perf_counter()
        try:
            with self._lock:
                if not self._probed:
                    self.probe()
            document = {"query": query, "top_k": min(k, MAX_SERVER_K), "workspace_id": self.workspace_id}
            body = self._post("retrieve_task_memory", document)
            hits = self._hits(body)[:k]
        except PoolError as error:
            return Retrieval((), self._failed(error), time.perf_counter() - started)
        return Retrieval(tuple(hits), None, time.perf_counter() - started)

    def _hits(self, body: Mapping[str, Any]) -> list[Hit]:
        metadata = body.get("metadata")
        memories = metadata.get("memory_list") if isinstance(metadata, Mapping) else None
        hits: list[Hit] = []
        if isinstance(memories, list):
            for rank, memory in enumerate(memories, start=1):
                try:
                    record = from_reme(memory)
                except RemeFormatError as error:
                    raise PoolError(ProblemKind.BAD_ANSWER, f"{self.base_url}: memory_list: {error}") from error
                with self._lock:
                    self._memories[record.id] = dict(memory)
                # 0.2 puts the similarity in the place of the score
                hits.append(Hit(record, 1.0 / rank, record.quality, vector_rank=rank))
            return hits
        text = str(body.get("answer", "")).strip()
        if text:  # no ids: it can be shown, not credited
            hits.append(Hit(ExperienceRecord("", text, id="", pool=self.workspace_id), 1.0, float("nan")))
        return hits

    def record_use(self, record_id: str, won: bool | None, control: bool = False) -> PoolProblem | None:
        """One rollout's outcome."""
        return self.record_uses([Use(record_id, won, control)])

    def record_uses(self, uses: Sequence[Use]) -> PoolProblem | None:
        """Credits what was used (not the control share); what could not be sent is kept for `flush`."""
        with self._lock:
            self._pending += [use for use in uses if not use.control and use.record_id in self._memories]
            return self.flush()

    def flush(self) -> PoolProblem | None:
        """Sends what waits."""
        with self._lock:
            try:
                for won in (True, False):
                    ids = [use.record_id for use in self._pending if (use.won is True) is won]
                    if not ids:
                        continue
                    document = {
                        "workspace_id": self.workspace_id,
                        "memory_dicts": [self._memories[one] for one in ids],
                        "update_utility": won,
                    }
                    self._post("record_task_memory", document)
                    self._pending = [use for use in self._pending if (use.won is True) is not won]
            except PoolError as error:
                return self._failed(error)
            return None

    def close(self) -> None:
        """Sends what waits, if it can be sent."""
        self.flush()

    def summarise(self, attempts: Sequence[tuple[Sequence[Mapping[str, Any]], bool]], batch: int = 8) -> Summary:
        """Has the service make memories of (messages, won) attempts, `batch` a request. Raises PoolError.

        The score is sent as 0 or 1: the service counts everything below 1 as a failure.
        """
        records: list[ExperienceRecord] = []
        inserted = deleted = 0
        for start in range(0, len(attempts), batch):
            part = attempts[start : start + batch]
            trajectories = [{"messages": list(messages), "score": float(won)} for messages, won in part]
            body = self._post("summary_task_memory", {"trajectories": trajectories, "workspace_id": self.workspace_id})
            metadata = body.get("metadata")
            if not isinstance(metadata, Mapping):
                raise PoolError(ProblemKind.BAD_ANSWER, f"{self.base_url}/summary_task_memory answers without metadata")
            try:
                records += [from_reme(memory) for memory in metadata.get("memory_list") or ()]
            except RemeFormatError as error:
                raise PoolError(ProblemKind.BAD_ANSWER, f"{self.base_url}: memory_list: {error}") from error
            update = metadata.get("update_result")
            if isinstance(update, Mapping):
                inserted += int(update.get("inserted_count", 0))
                deleted += int(update.get("deleted_count", 0))
        return Summary(tuple(records), inserted, deleted)

    def forget(self, ids: Sequence[str]) -> None:
        """Deletes memories by id. Raises PoolError."""
        self._post(
            "vector_store",
            {"workspace_id": self.workspace_id, "action": "delete_ids", "memory_ids": list(ids)},
        )

    def _url(self, flow: str) -> str:
        return f"{self.base_url.rstrip('/')}/{flow}"

    def _post(self, flow: str, document: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = request_json("POST", self._url(flow), document, timeouts=self.timeouts)
        return self._checked(flow, answer)

    def _checked(self, flow: str, answer: HttpAnswer) -> Mapping[str, Any]:
        where = f"{self.base_url}/{flow}"
        if answer.status != 200:
            raise PoolError(ProblemKind.REFUSED, f"{where} answers {answer.status}: {str(answer.body)[:200]}")
        if not answer.is_json or not isinstance(answer.body, Mapping) or "answer" not in answer.body:
            raise PoolError(ProblemKind.BAD_ANSWER, f"{where} answers something else than ReMe 0.2 does. {_ADVICE}")
        if answer.body.get("success") is False:
            raise PoolError(ProblemKind.REFUSED, f"{where} failed: {str(answer.body['answer'])[:200]}")
        return answer.body

    def _failed(self, error: PoolError) -> PoolProblem:
        self.problems[error.problem.kind] = self.problems.get(error.problem.kind, 0) + 1
        self.last_problem = error.problem
        return error.problem


_ADVICE = f"Install {PINNED} on the service's side, or leave reme out and use the pool of the workspace"
