"""Worked examples: the environments' own solutions, played and shown before each problem."""

from pathlib import Path
from typing import Any

import pytest

from trainer.config import TrainingConfig
from trainer.envs import registry
from trainer.envs.base import EnvironmentFault, EnvironmentSpec, Split
from trainer.examples import worked_examples
from trainer.models.load import LoadedModel
from trainer.rollout.rendering import Renderer, tool_schemas
from trainer.rollout.toolless import spoken
from trainer.tasks import build_tasks, conversation

ENVIRONMENTS = ["calculator", "house_rules", "lookup"]


def configured(env: str, **more: Any) -> TrainingConfig:
    return TrainingConfig.model_validate(
        {"env": env, "problems": 8, "test_problems": 8, "validation_problems": 8} | more
    )


@pytest.mark.parametrize("difficulty", ["simple", "mixed", "hard"])
@pytest.mark.parametrize("env", ENVIRONMENTS)
def test_every_solution_earns_the_full_reward(env: str, difficulty: str) -> None:
    spec = registry.load(env)
    assert spec.tasks is not None
    assert spec.solution is not None
    for row in spec.tasks(Split.TRAIN, 40, 3, difficulty):
        environment = spec.factory()
        environment.reset(**{key: value for key, value in row.items() if key != "prompt"})
        for tool, arguments in spec.solution(row):
            getattr(environment, tool)(**arguments)
        assert environment.get_reward() == 1.0, row


def test_they_stand_before_each_problem_of_every_split(tmp_path: Path) -> None:
    spec = registry.load("calculator")
    plain, shown = (build_tasks(configured("calculator", examples=n), spec, tmp_path) for n in (0, 2))
    examples = worked_examples(configured("calculator", examples=2), spec)
    assert [m["role"] for m in examples] == ["user", "assistant", "tool", "assistant"] * 2
    for split in Split:
        for one, other in zip(plain.of(split), shown.of(split), strict=True):
            messages = conversation(other, "Be brief.")
            assert messages[0] == {"role": "system", "content": "Be brief."}
            assert messages[1:-1] == examples
            assert messages[-1] == {"role": "user", "content": one["prompt"]}
            assert {k: v for k, v in other.items() if k != "prompt"} == {k: v for k, v in one.items() if k != "prompt"}


def test_a_system_message_in_a_row_stays_first(tmp_path: Path) -> None:
    class Own(registry.load("calculator").factory):  # type: ignore[misc]
        @classmethod
        def tasks(cls, split: Any, n: int, seed: int, difficulty: str = "mixed") -> list[dict[str, Any]]:
            rows = super().tasks(split, n, seed, difficulty)
            if seed > 1000:  # the examples' own
                return list(rows)
            return [
                {**r, "prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": r["prompt"]}]}
                for r in rows
            ]

    spec = EnvironmentSpec.of("own", Own)
    row = build_tasks(configured("calculator", examples=1), spec, tmp_path).train[0]
    assert [m["role"] for m in row["prompt"]] == ["system", "user", "assistant", "tool", "assistant", "user"]


def test_a_model_with_tools_in_its_template_reads_them_as_calls(tiny: LoadedModel) -> None:
    spec = registry.load("calculator")
    renderer = Renderer(tiny.tokenizer, tool_schemas(spec))
    examples = worked_examples(configured("calculator", examples=1, difficulty="simple"), spec)
    text = renderer.prompt_text([*examples, {"role": "user", "content": "What is 2 + 3?"}])
    assert text.count('<tool_call>\n{"name": "calculate"') == 1
    assert text.count('<tool_call>\n{"name": "finish"') == 1
    assert f"<tool_response>\n{examples[2]['content']}\n</tool_response>" in text


def test_a_model_without_them_reads_the_same_as_text() -> None:
    calls = [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]
    turns = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": calls * 2},
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
        {"role": "assistant", "content": "done"},
    ]
    said = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    assert spoken(turns) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": f"{said}\n{said}"},
        {"role": "user", "content": "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"},
        {"role": "assistant", "content": "done"},
    ]


class Wrong(registry.load("calculator").factory):  # type: ignore[misc]
    """Solves nothing."""

    @classmethod
    def solution(cls, row: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        return [("finish", {"answer": "no number"})]


class Broken(registry.load("calculator").factory):  # type: ignore[misc]
    """Calls what is not there."""

    @classmethod
    def solution(cls, row: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        return [("submit", {"answer": "1"})]


class Silent:
    """Cannot be shown."""

    def reset(self, **row: Any) -> None: ...

    def say(self, text: str) -> str:
        """
        Say.

        Args:
            text: What.
        """
        return text

    def get_reward(self) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("environment", "words"),
    [(Wrong, "earns 0, not 1"), (Broken, "failed"), (Silent, "has no worked examples")],
)
def test_a_solution_that_is_none_is_said(environment: type, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        worked_examples(configured("calculator", examples=1), EnvironmentSpec.of("own", environment))
