"""Labels of turns by a service: asked about what is learned from, taken only where they fit, else counted."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from test_services import QUICK, Answer, service

from trainer.credit import StepCredit
from trainer.experience.config import ExperienceSettings, settings_of
from trainer.experience.problems import ExperienceError
from trainer.experience.step_labels import (
    GIVE_UP,
    EndpointLabels,
    Unlabelled,
    labels_in,
    labels_of_settings,
    shown_turns,
)
from trainer.rollout.types import Episode, EpisodeRequest, StopReason
from trainer.runs.workspace import create_workspace


def attempt(turns: int, reward: float, question: str = "What is 1 + 1?") -> Episode:
    """An attempt whose turns are one token each, with a token of the environment between them."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    request = EpisodeRequest(list(messages), {}, 0, 0, 0)
    for number in range(turns):
        call = {"name": "calculate", "arguments": {"expression": f"{number} + 1"}}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": call}]},
            {"role": "tool", "content": str(number + 1)},
        ]
    mask = ([1, 0] * turns)[:-1]
    size = len(mask)
    return Episode(request, [1], None, [2] * size, mask, [0.0] * size, reward=reward, messages=messages)


def replies(*texts: str) -> Answer:
    """Chat completions, one after the other; the last one again and again."""
    waiting = list(texts)

    def answer(method: str, path: str, document: Any) -> tuple[int, Any]:
        text = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return 200, {"choices": [{"message": {"content": text}}]}

    return answer


@pytest.mark.parametrize(
    ("text", "turns", "labels"),
    [
        ('["GOOD", "BAD"]', 2, [True, False]),
        ('Turn [1] was fine: ```json\n["good", " Bad "]\n```', 2, [True, False]),
        ('["GOOD"]', 2, None),  # never padded
        ('["GOOD", "BAD", "BAD"]', 2, None),
        ('["GOOD", "BAD"] or rather ["BAD", "BAD"]', 2, [True, False]),
        ('["GOOD", "FINE"]', 2, None),
        ("[true, false]", 2, None),
        ("The first is GOOD and the second BAD.", 2, None),  # no labels out of prose
        ("[" * 100_000, 2, None),
        ("[]", 0, None),
        ("", 1, None),
    ],
)
def test_a_reply_is_taken_only_where_it_fits(text: str, turns: int, labels: list[bool] | None) -> None:
    assert labels_in(text, turns) == labels


def test_a_service_is_shown_turns_and_outcome_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABEL_KEY", "k1")
    episode = attempt(2, 1.0, "Use the key sk-proj-abcdefghij0123456789 to add.")
    episode.messages[2]["content"] = "x" * 1000
    with service(replies('["GOOD", "BAD"]')) as (url, seen):
        asks = EndpointLabels(f"{url}/v1/", "judge", "LABEL_KEY", QUICK)
        assert asks([episode]) == [[True, False]]
    ((path, sent),) = seen
    assert (path, sent["key"], sent["document"]["model"]) == ("/v1/chat/completions", "Bearer k1", "judge")
    shown = json.loads(sent["document"]["messages"][1]["content"])
    assert shown["succeeded"] is True
    assert "sk-proj-abcdefghij0123456789" not in json.dumps(shown)
    assert [one["turn"] for one in shown["turns"]] == [1, 2]
    assert len(shown["turns"][0]["answers"][0]) == 400
    assert shown_turns(episode)[1]["said"] == ['{"name": "calculate", "arguments": {"expression": "1 + 1"}}']
    assert asks.document() == {"labelled": 1, "unlabelled": {}}


def test_credit_takes_the_services_labels_and_asks_only_where_there_is_signal() -> None:
    """Decouple: A good, bad with outcome 1, B bad with -1 (by hand in test_step_credit)."""
    group = [attempt(2, 1.0), attempt(1, 0.0)]
    alike = [attempt(1, 1.0), attempt(2, 1.0)]
    broken = attempt(1, 0.0)
    broken.stop_reason = StopReason.ENVIRONMENT_ERROR

    def answer(method: str, path: str, document: Any) -> tuple[int, Any]:
        turns = json.loads(document["messages"][1]["content"])["turns"]
        return 200, {"choices": [{"message": {"content": json.dumps(["GOOD", "BAD"] if len(turns) == 2 else ["BAD"])}}]}

    with service(answer) as (url, seen):
        asks = EndpointLabels(url, "judge", timeouts=QUICK)
        credit = StepCredit("decouple", 0.1, 2, asks)
        found = credit([*group, *alike, broken, attempt(1, 1.0)], torch.tensor([1.0, -1.0, 0.0, 0.0, 0.0, 0.0]))
    assert len(seen) == 2
    first = [(0.173205 - 0.057735 + 1) / 2**0.5, (-0.057735 + 1) / 2**0.5]
    assert [found[0, 0], found[0, 2]] == pytest.approx(first, abs=1e-5)
    assert found[1, 0] == pytest.approx(-1.057735, abs=1e-5)
    assert not found[2:].any()
    assert credit.metrics() == {"bad_turn_rate": 2 / 3, "credit_fallbacks": 0.0}


def test_what_has_no_labels_keeps_its_ordinary_advantage_and_is_counted() -> None:
    with service(replies("no idea")) as (url, _):
        asks = EndpointLabels(url, "judge", timeouts=QUICK)
        credit = StepCredit("allocation", 0.1, 2, asks)
        found = credit([attempt(2, 1.0), attempt(1, 0.0)], torch.tensor([1.0, -1.0]))
    assert found.tolist() == [[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]
    assert credit.metrics() == {"credit_fallbacks": 2.0}
    assert asks.document() == {"labelled": 0, "unlabelled": {"unreadable": 2}}


def test_a_service_that_fails_is_soon_left_alone() -> None:
    with service(lambda method, path, document: (503, {"error": "busy"})) as (url, seen):
        asks = EndpointLabels(url, "judge", timeouts=QUICK)
        assert asks([attempt(1, 1.0)] * 60) == [None] * 60
        assert GIVE_UP <= len(seen) < 30  # those on their way when it gave up are answered
        asked = len(seen)
        assert asks([attempt(1, 1.0)]) == [None]
        assert len(seen) == asked + 1  # the next step asks again
    assert asks.reasons == {Unlabelled.SERVICE: 61}
    assert "answers 503" in (asks.last_problem or "")
    assert asks([attempt(1, 1.0)]) == [None]  # and now nobody is there
    assert "cannot be reached" in (asks.last_problem or "")


def test_a_step_does_not_wait_for_ever() -> None:
    go = threading.Event()

    def answer(method: str, path: str, document: Any) -> tuple[int, Any]:
        go.wait(20)
        return 200, {}

    with service(answer) as (url, _):
        asks = EndpointLabels(url, "judge", step_s=0.3)
        began = time.monotonic()
        assert asks([attempt(1, 1.0)] * 3) == [None] * 3
        assert time.monotonic() - began < 10
        go.set()
    assert sum(asks.reasons.values()) == 3


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"step_labels": "endpoint"}, "needs experience.endpoint with base_url and model"),
        ({"step_labels": "endpoint", "endpoint": {"base_url": "http://x"}}, "base_url and model"),
        (
            {"step_labels": "endpoint", "endpoint": {"base_url": "http://x", "model": "m", "api_key_env": "NOT_SET_1"}},
            "NOT_SET_1.* is not set.* child_environment",
        ),
    ],
)
def test_a_service_that_cannot_be_asked_is_said_before_training(section: dict[str, Any], words: str) -> None:
    with pytest.raises(ExperienceError, match=words):
        labels_of_settings(ExperienceSettings.model_validate(section))


def test_the_workspace_chooses_who_labels(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path)
    assert labels_of_settings(settings_of(workspace)) is None
    written = workspace.config_path.read_text() if workspace.config_path.exists() else ""
    section = "experience: {step_labels: endpoint, endpoint: {base_url: 'http://127.0.0.1:9/v1', model: judge}}\n"
    workspace.config_path.write_text(written + section)
    assert isinstance(labels_of_settings(settings_of(workspace)), EndpointLabels)
