"""Pinned semantics of token, mask, reward and stop reason. If one of these fails, the code is wrong, not the test."""

import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from trainer.envs.base import EnvironmentSpec
from trainer.rollout.tools import ToolRunner
from trainer.rollout.types import Limits, StopReason


def call(name: str, **arguments: object) -> str:
    import json

    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


GOOD = [call("calculate", expression="2 + 3"), call("finish", answer="5")]


def test_one_episode_byte_for_byte(scripted, tiny) -> None:
    (episode,), _ = scripted([GOOD])
    text = tiny.tokenizer.decode(episode.completion_ids)
    assert text == (
        '<tool_call>\n{"name": "calculate", "arguments": {"expression": "2 + 3"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n5\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
        '<tool_call>\n{"name": "finish", "arguments": {"answer": "5"}}\n</tool_call><|im_end|>'
    )
    spoken = tiny.tokenizer.decode([t for t, m in zip(episode.completion_ids, episode.mask, strict=True) if m])
    assert spoken == "".join(f"{turn}<|im_end|>" for turn in GOOD)  # mask 1 on the model's tokens and only there
    assert len(episode.completion_ids) == len(episode.mask) == len(episode.logprobs)
    assert all(lp == 0.0 for lp, m in zip(episode.logprobs, episode.mask, strict=True) if not m)
    assert (episode.reward, episode.stop_reason, episode.turns, episode.tool_calls) == (1.0, StopReason.FINISHED, 2, 2)
    assert episode.mask[-1] == 1  # TRL calls an episode that ends on environment tokens truncated


def test_the_model_is_fed_exactly_what_the_episode_says(scripted) -> None:
    (episode,), script = scripted([GOOD])
    assert script.fed[0] == episode.completion_ids[:-1]


def test_every_request_comes_back_in_order_whatever_the_rows_do(scripted) -> None:
    turns = [GOOD, ["The answer is 5."], [call("finish", answer="6")], ["<tool_call>\n{", "<tool_call>\n{"], GOOD]
    episodes, _ = scripted(turns)
    assert [e.request.generation for e in episodes] == [0, 1, 2, 3, 4]
    assert [e.reward for e in episodes] == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert [e.stop_reason for e in episodes] == [
        StopReason.FINISHED,
        StopReason.COMPLETED,
        StopReason.FINISHED,
        StopReason.PARSE_ERRORS,
        StopReason.FINISHED,
    ]


def test_a_row_does_not_depend_on_the_batch(scripted) -> None:
    alone, _ = scripted([GOOD])
    together, _ = scripted([GOOD, ["x"], [call("finish", answer="1")]])
    assert alone[0].completion_ids == together[0].completion_ids


def test_malformed_call_gets_feedback_and_may_be_mended(scripted, tiny) -> None:
    (episode,), _ = scripted([['<tool_call>\n{"name": calculate}\n</tool_call>', *GOOD]])
    assert (episode.parse_errors, episode.reward, episode.turns) == (1, 1.0, 3)
    assert "Error: the call is not valid JSON" in tiny.tokenizer.decode(episode.completion_ids)


def test_unknown_tool_and_wrong_arguments_are_answered(scripted, tiny) -> None:
    (episode,), _ = scripted([[call("guess", answer="5"), call("calculate", formula="1"), *GOOD]])
    text = tiny.tokenizer.decode(episode.completion_ids)
    assert "Error: unknown tool guess; allowed: calculate, finish" in text
    assert "Error: wrong arguments" in text
    assert (episode.parse_errors, episode.tool_errors, episode.reward) == (1, 1, 1.0)


def test_parallel_calls_are_answered_in_order(scripted, tiny) -> None:
    both = call("calculate", expression="1 + 1") + "\n" + call("calculate", expression="9 * 9")
    (episode,), _ = scripted([[both, call("finish", answer="5")]])
    text = tiny.tokenizer.decode(episode.completion_ids)
    assert "<tool_response>\n2\n</tool_response>\n<tool_response>\n81\n</tool_response><|im_end|>" in text


@pytest.mark.parametrize("cap", [10, 40, 50])
def test_the_cap_is_a_cap_and_says_so(scripted, cap: int) -> None:
    (episode,), _ = scripted([GOOD], limits=Limits(max_completion_tokens=cap))
    assert len(episode.completion_ids) <= cap
    assert episode.stop_reason is StopReason.MAX_TOKENS
    assert episode.mask[-1] == 1


def test_turns_are_capped(scripted) -> None:
    (episode,), _ = scripted([[call("calculate", expression="1 + 1")] * 5], limits=Limits(max_turns=2))
    assert (episode.turns, episode.stop_reason) == (2, StopReason.MAX_TURNS)


class Base:
    """A tool environment for faults."""

    def reset(self, **row: object) -> str | None:
        return None

    def get_reward(self) -> float:
        return 1.0

    def calculate(self, expression: str) -> str:
        """
        Calculate.

        Args:
            expression: It.
        """
        return "5"


class BreaksAtReset(Base):
    def reset(self, **row: object) -> str | None:
        raise KeyError("no data")


class BreaksAtReward(Base):
    def get_reward(self) -> float:
        return float("nan")


class Hangs(Base):
    def calculate(self, expression: str) -> str:
        """
        Calculate.

        Args:
            expression: It.
        """
        time.sleep(5)
        return "5"


class Observes(Base):
    def reset(self, **row: object) -> str | None:
        return "A blue box."


@pytest.mark.parametrize(
    ("environment", "words"),
    [(BreaksAtReset, "reset: KeyError"), (BreaksAtReward, "get_reward: ValueError: the reward is nan")],
)
def test_a_broken_environment_costs_its_own_episode_and_is_no_evidence(scripted, environment: type, words: str) -> None:
    (episode,), _ = scripted([["done"]], EnvironmentSpec.of("x", environment))
    assert episode.stop_reason is StopReason.ENVIRONMENT_ERROR
    assert not episode.valid
    assert words in episode.error
    assert len(episode.completion_ids) >= 1  # TRL needs a token
    if environment is BreaksAtReset:
        assert episode.mask == [0]


def test_a_tool_that_hangs_ends_the_episode(scripted) -> None:
    began = time.monotonic()
    (episode,), _ = scripted(
        [[call("calculate", expression="1")]], EnvironmentSpec.of("x", Hangs), Limits(tool_timeout_s=0.2)
    )
    assert episode.stop_reason is StopReason.TOOL_TIMEOUT
    assert time.monotonic() - began < 4


class Stuck(Base):
    """Hangs where `where` says; 0.2 s each."""

    tool_timeouts = dict.fromkeys(("reset", "get_reward", "finished", "close"), 0.2)
    where = ""

    def _wait(self, where: str) -> None:
        if where == self.where:
            time.sleep(3)

    def reset(self, **row: object) -> str | None:
        self._wait("reset")
        return None

    def get_reward(self) -> float:
        self._wait("get_reward")
        return 1.0

    def close(self) -> None:
        self._wait("close")

    @property
    def finished(self) -> bool:
        self._wait("finished")
        return False


@pytest.mark.parametrize("where", ["reset", "get_reward", "finished"])
def test_an_environment_that_hangs_costs_its_own_episode(scripted, where: str) -> None:
    spec = EnvironmentSpec.of("x", type("Mine", (Stuck,), {"where": where}))
    began = time.monotonic()
    (episode,), _ = scripted([[call("calculate", expression="1"), "done"]], spec)
    assert time.monotonic() - began < 2.8
    assert (episode.stop_reason, episode.valid, episode.reward) == (StopReason.ENVIRONMENT_ERROR, False, 0.0)
    assert episode.error == (
        f"{where}: EnvironmentTimeout: no answer within 0.2 s. Mend what it waits for; where it needs longer, give the "
        f'class tool_timeouts = {{"{where}": seconds}}, or the run a higher tool_timeout_s'
    )


def test_a_close_that_hangs_spoils_no_reward(scripted) -> None:
    spec = EnvironmentSpec.of("x", type("Mine", (Stuck,), {"where": "close"}))
    (one, other), _ = scripted([["done"], ["done"]], spec)
    assert [e.reward for e in (one, other)] == [1.0, 1.0]
    assert one.valid
    assert one.error.startswith("close: EnvironmentTimeout: no answer within 0.2 s")


def test_an_environment_is_closed_where_its_reset_failed(scripted) -> None:
    closed: list[object] = []

    class Opens(BreaksAtReset):
        def close(self) -> None:
            closed.append(self)

    (episode,), _ = scripted([["done"]], EnvironmentSpec.of("x", Opens))
    assert episode.error == "reset: KeyError: 'no data'"
    assert len(closed) == 1


def test_own_functions_have_a_minute_or_what_a_tool_has() -> None:
    given: list[tuple[str, float]] = []

    class Notes:
        def run(self, job: Callable[[], object], timeout_s: float, name: str) -> object:
            given.append((name, timeout_s))
            return job()

    for timeout_s in (0.5, 300.0):
        runner = ToolRunner(timeout_s, {"close": 7.0}, Notes())
        assert runner.own("reset", lambda: "seen") == "seen"
        runner.own("close", lambda: None)
    assert given == [("reset", 60.0), ("close", 7.0), ("reset", 300.0), ("close", 7.0)]


def test_a_reward_function_may_set_alarms(scripted) -> None:
    import signal

    def reward(episode: object, environment: object) -> float:
        signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGALRM))  # ValueError in any other thread
        return 0.5

    (episode,), _ = scripted([["done"]], EnvironmentSpec.of("x", Base), reward=reward)
    assert (episode.reward, episode.error) == (0.5, None)


def test_the_first_observation_joins_the_users_message(scripted, tiny) -> None:
    (episode,), _ = scripted([["done"]], EnvironmentSpec.of("x", Observes))
    assert tiny.tokenizer.decode(episode.prompt_ids).endswith(
        "<|im_start|>user\nWhat is 2 + 3?\n\nA blue box.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_an_own_reward_replaces_the_environments(tiny, monkeypatch) -> None:
    from trainer.rollout.engine import RolloutEngine
    from trainer.rollout.types import Episode

    engine = RolloutEngine(
        tiny.model, tiny.tokenizer, EnvironmentSpec.of("x", Base), Limits(), seed=1, reward=lambda e, env: 0.25
    )
    row = SimpleNamespace(episode=Episode(None, [1], [2], [1], [0.0]), environment=Base(), began=0.0)  # type: ignore[arg-type]
    engine._grade(row)  # type: ignore[arg-type]
    assert row.episode.reward == 0.25
