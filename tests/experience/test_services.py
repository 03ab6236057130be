"""Services on loopback that speak the documented JSON, and all the ways in which they may not."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from trainer.experience.distil_endpoint import ask_endpoint, lessons_in, pairs_of
from trainer.experience.embed_remote import EndpointEmbedder, bearer
from trainer.experience.http_json import Timeouts, request_json
from trainer.experience.problems import PoolError, ProblemKind
from trainer.experience.records import Polarity, Use
from trainer.experience.reme_client import RemeSource
from trainer.experience.trajectories import Call, Trajectory

Answer = Callable[[str, str, Any], tuple[int, Any]]
QUICK = Timeouts(1.0, 1.0)


@contextmanager
def service(answer: Answer) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """(address, requests) of a server that answers `answer(method, path, document)` → (status, document or bytes)."""
    seen: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            document = json.loads(body) if body else None
            seen.append((self.path, {"document": document, "key": self.headers.get("Authorization")}))
            status, reply = answer(self.command, self.path, document)
            data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _do

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()


MEMORIES = [
    {
        "workspace_id": "default", "memory_id": f"m{number}", "memory_type": "task", "when_to_use": f"when {number}",
        "content": f"do {number}", "score": 0.9 - number / 10, "time_created": "2025-11-20 10:11:12",
        "time_modified": "2025-11-20 10:11:12", "author": "m", "metadata": {},
    }
    for number in range(5)
]  # fmt: skip


def reme_02(method: str, path: str, document: Any) -> tuple[int, Any]:
    """The 0.2 contract: what the flows answer."""
    if (method, path) == ("GET", "/health"):
        return 200, {"status": "healthy"}
    if path == "/retrieve_task_memory":
        assert set(document) == {"query", "top_k", "workspace_id"}
        found = [] if document["workspace_id"] == "__probe__" else MEMORIES[: document["top_k"]]
        text = "\n".join(
            f"Memory {i} :\n When to use: {one['when_to_use']}\n Content: {one['content']}\n"
            for i, one in enumerate(found, 1)
        )
        return 200, {"answer": text, "success": True, "metadata": {"memory_list": found}}
    if path == "/record_task_memory":
        assert set(document) == {"workspace_id", "memory_dicts", "update_utility"}
        return 200, {"answer": "", "success": True, "metadata": {}}
    if path == "/summary_task_memory":
        assert all(set(one) == {"messages", "score"} for one in document["trajectories"])
        made = MEMORIES[: len(document["trajectories"])]
        update = {"deleted_count": 0, "inserted_count": len(made)}
        return 200, {
            "answer": json.dumps(made),
            "success": True,
            "metadata": {"memory_list": made, "update_result": update},
        }
    if path == "/vector_store":
        return 200, {"answer": "", "success": True, "metadata": {"action_result": str(document["action"])}}
    return 404, {"detail": "Not Found"}


def test_reme_02() -> None:
    with service(reme_02) as (address, seen):
        source = RemeSource(address, timeouts=QUICK)
        found = source.retrieve("What is 3 + 4?", 2)
        assert found.problem is None
        assert found.ids == ("m0", "m1")
        assert found.hits[0].record.content == "do 0"
        assert [path for path, _ in seen] == ["/health", "/retrieve_task_memory", "/retrieve_task_memory"]
        assert seen[-1][1]["document"] == {"query": "What is 3 + 4?", "top_k": 2, "workspace_id": "default"}
        assert len(source.retrieve("q", 50).hits) == 5
        assert seen[-1][1]["document"]["top_k"] == 5
        uses = [Use("m0", True), Use("m1", False), Use("m1", True, control=True), Use("unknown", True)]
        assert source.record_uses(uses) is None
        credited = [(s["document"]["update_utility"], [m["memory_id"] for m in s["document"]["memory_dicts"]])
                    for path, s in seen if path == "/record_task_memory"]  # fmt: skip
        assert credited == [(True, ["m0"]), (False, ["m1"])]
        assert seen[-1][1]["document"]["memory_dicts"][0] == MEMORIES[1]
        summary = source.summarise(
            [([{"role": "user", "content": "q"}], number % 2 == 0) for number in range(5)], batch=2
        )
        assert (summary.inserted, len(summary.records)) == (5, 5)
        scores = [[t["score"] for t in s["document"]["trajectories"]] for p, s in seen if p == "/summary_task_memory"]
        assert scores == [[1.0, 0.0], [1.0, 0.0], [1.0]]
        source.forget(["m0"])
        assert seen[-1][1]["document"] == {"workspace_id": "default", "action": "delete_ids", "memory_ids": ["m0"]}


def test_text_alone_can_be_shown_but_not_credited() -> None:
    with service(lambda m, p, d: (200, {"answer": "Previous Memory\n- a b", "success": True})) as (address, _):
        found = RemeSource(address, timeouts=QUICK).retrieve("q")
        assert found.hits[0].record.rendered().startswith("Previous Memory")
        assert found.hits[0].record.id == ""


def slow(method: str, path: str, document: Any) -> tuple[int, Any]:
    time.sleep(2.0)
    return 200, {"answer": ""}


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (lambda m, p, d: (200, {}) if m == "GET" else (404, {}), ProblemKind.INCOMPATIBLE, "reme-ai>=0.2,<0.3"),
        (lambda m, p, d: (500, {"detail": "down"}), ProblemKind.REFUSED, "500"),
        (lambda m, p, d: (200, b"<html>"), ProblemKind.BAD_ANSWER, "something else"),
        (lambda m, p, d: (200, [1]), ProblemKind.BAD_ANSWER, "something else"),
        (lambda m, p, d: (200, {"answer": "no key", "success": False}), ProblemKind.REFUSED, "no key"),
        (
            lambda m, p, d: (200, {"answer": "", "metadata": {"memory_list": [3]}}),
            ProblemKind.BAD_ANSWER,
            "memory_list",
        ),
        (slow, ProblemKind.TIMED_OUT, "in time"),
    ],
)
def test_whatever_a_service_does_is_a_value(answer: Answer, kind: ProblemKind, words: str) -> None:
    with service(answer) as (address, _):
        source = RemeSource(address, timeouts=QUICK)
        found = source.retrieve("q")
    assert found.hits == ()
    assert found.problem is not None
    assert found.problem.kind is kind
    assert words in found.problem.say
    assert source.problems == {kind: 1}


def test_a_service_that_goes_down_in_the_middle_and_comes_back() -> None:
    up = True

    def answer(method: str, path: str, document: Any) -> tuple[int, Any]:
        return reme_02(method, path, document) if up else (503, {})

    with service(answer) as (address, seen):
        source = RemeSource(address, timeouts=QUICK)
        assert source.retrieve("q").ids
        up = False
        assert source.retrieve("q").problem is not None
        assert source.record_use("m0", True) is not None
        up = True
        assert source.flush() is None
        assert seen[-1][0] == "/record_task_memory"
    found = source.retrieve("q")
    assert found.problem is not None
    assert found.problem.kind is ProblemKind.UNREACHABLE
    assert found.problem.retryable


def test_versions_that_cannot_be_used_are_refused_before_anything_is_sent() -> None:
    for version in ("0.3", "0.4.1"):
        found = RemeSource("http://127.0.0.1:9", version=version, timeouts=QUICK).retrieve("q")
        assert found.problem is not None
        assert found.problem.kind is ProblemKind.INCOMPATIBLE
    with pytest.raises(PoolError, match="no address"):
        request_json("GET", "ftp://x", timeouts=QUICK)


def embeddings(method: str, path: str, document: Any) -> tuple[int, Any]:
    rows = [{"index": i, "embedding": [3.0, float(len(text))]} for i, text in enumerate(document["input"])]
    return 200, {"data": rows[::-1]}


def test_an_embedding_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "k-123")
    with service(embeddings) as (address, seen):
        embedder = EndpointEmbedder(f"{address}/v1", "m", "A_KEY", QUICK)
        assert embedder.dimensions == 2
        assert embedder.embed(["abcd"]).tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]
        assert seen[-1][0] == "/v1/embeddings"
        assert seen[-1][1]["key"] == "Bearer k-123"
    with service(lambda m, p, d: (200, {"data": []})) as (address, _), pytest.raises(PoolError, match="vectors"):
        EndpointEmbedder(address, "m", timeouts=QUICK)
    with pytest.raises(PoolError, match="NOT_SET"):
        bearer("NOT_SET", {})


def attempt(question: str, expression: str, reward: float, k: int) -> Trajectory:
    calls = (Call("calculate", {"expression": expression}, "35 sk-proj-abcdefghij0123456789", False),)
    return Trajectory(question, calls, reward, group="1/0", place=f"1/0/{k}", stop_reason="finished")


ATTEMPTS = [attempt("What is 7 @ 5?", "7 * 5", 1.0, 0), attempt("What is 7 @ 5?", "7 + 5", 0.0, 1)]


def test_pairs_are_compact_and_hold_no_secret() -> None:
    lonely = attempt("What is 1 @ 2?", "1 + 2", 1.0, 2)
    pairs = pairs_of([lonely, *ATTEMPTS], 0.5, 5)
    assert [pair.question for pair in pairs] == ["What is 7 @ 5?", "What is 1 @ 2?"]
    assert pairs[0].won == ('calculate({"expression": "7 * 5"}) → 35 [redacted:api-key]', "ended: finished, reward 1")
    assert pairs[0].lost[0].startswith('calculate({"expression": "7 + 5"})')
    assert pairs[0].places == ("1/0/0", "1/0/1")
    assert len(pairs_of([lonely, *ATTEMPTS], 0.5, 1)) == 1


def test_a_service_writes_lessons() -> None:
    good = {"when_to_use": "What is x @ y?", "content": "use calculate with x * y", "polarity": "contrast"}
    bad = {"when_to_use": "What is x @ y?", "content": ""}

    def answer(method: str, path: str, document: Any) -> tuple[int, Any]:
        assert "What is 7 @ 5?" in document["messages"][1]["content"]
        text = f"Sure [1]:\n```json\n{json.dumps([good, bad])}\n```"
        return 200, {"choices": [{"message": {"content": text}}]}

    with service(answer) as (address, _):
        pairs = pairs_of(ATTEMPTS, 0.5, 5)
        written = ask_endpoint(pairs, base_url=address, model="m", timeouts=QUICK, fields={"family": "f"})
    (record,) = written.records
    assert (record.content, record.polarity, record.author, record.family) == (
        good["content"], Polarity.CONTRAST, "m", "f",
    )  # fmt: skip
    assert "content is empty" in written.refused[0]
    with service(lambda m, p, d: (200, {"choices": []})) as (address, _), pytest.raises(PoolError, match="no chat"):
        ask_endpoint([], base_url=address, model="m", timeouts=QUICK)


def test_replies_that_hold_no_lessons() -> None:
    for text in ("", "no list", "[1, 2", "[]", "{}"):
        written = lessons_in(text, author="m")
        assert (written.records, len(written.refused)) == ([], 1)
    many = json.dumps([{"when_to_use": f"w{n}", "content": "c"} for n in range(9)])
    assert len(lessons_in(many, author="m").records) == 5


def test_a_reply_of_brackets_is_given_up_soon() -> None:
    began = time.monotonic()
    assert lessons_in("[" * 200_000, author="x").refused == ["the reply holds no JSON list of lessons"]
    assert time.monotonic() - began < 10
