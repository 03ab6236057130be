"""Every rule of the preflight fires where it should and is silent where it should, with numbers worked out by hand."""

import random
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer.config import TrainingConfig
from trainer.envs import registry
from trainer.envs.base import EnvironmentSpec
from trainer.evaluate import limits_of
from trainer.models import preflight as module
from trainer.models.load import LoadedModel
from trainer.models.memory import activation_bytes
from trainer.models.parsing import ParsedTurn
from trainer.models.preflight import (
    PROBE_OCCURRENCE,
    PreflightFault,
    available_bytes,
    context_of,
    memory_need,
    preflight,
    refuse,
)
from trainer.models.preflight_rules import (
    Check,
    MemoryNeed,
    Notice,
    check_context,
    check_diversity,
    check_format,
    check_length,
    check_memory,
    check_parser,
    check_reference,
    check_signal,
    check_template,
    quantile,
    round_up,
)
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.types import Episode, EpisodeRequest, StopReason
from trainer.runs.detectors.types import Severity
from trainer.tasks import Tasks, build_tasks, group_requests

GB = 2**30


def episode(length: int = 10, reward: float = 0.0, **fields: Any) -> Episode:
    made = Episode(EpisodeRequest([], {}, 0, 0, 0), [1], completion_ids=[2] * length, reward=reward)
    return replace(made, **fields)


def cut(length: int = 100) -> Episode:
    return episode(length, stop_reason=StopReason.MAX_TOKENS)


# ---- P1


def test_p1_context() -> None:
    assert check_context(300, 1000, 700) == []  # 300 + 700 fits exactly
    assert check_context(300, None, 10**6) == []
    (tight,) = check_context(300, 1000, 701)
    assert (tight.id, tight.severity) == (Check.LENGTH, Severity.WARN)
    assert "at most 700" in tight.advice
    (impossible,) = check_context(1000, 1000, 16)
    assert impossible.severity is Severity.CRITICAL
    assert impossible.numbers == {"prompt_tokens_max": 1000, "max_completion_tokens": 16, "context": 1000}
    assert check_context(999, 1000, 16)[0].severity is Severity.WARN


def test_p1_cut_episodes() -> None:
    assert check_length([], 100, None) == []
    assert check_length([episode(50)] * 17 + [cut()] * 3, 100, None) == []  # 15 % is still in order
    # 4 of 20 cut: the 95th percentile is the cap, 1.25 · 100 = 125 → 128
    (some,) = check_length([episode(50)] * 16 + [cut()] * 4, 100, None)
    assert some.numbers == {
        "truncated": 0.2,
        "episodes": 20,
        "p95": 100,
        "max_completion_tokens": 100,
        "proposal": 128,
    }
    assert some.severity is Severity.WARN
    (most,) = check_length([cut()] * 3 + [episode(50)], 100, None)
    assert most.numbers["proposal"] == 256  # twice the cap: 200 → 256
    assert check_length([cut()], 100, 150)[0].numbers["proposal"] == 150  # the context leaves no more
    assert "no more room" in check_length([cut()], 100, 100)[0].advice


def test_quantile_and_rounding() -> None:
    assert [quantile(list(range(1, 21)), q) for q in (0.0, 0.5, 0.95, 1.0)] == [1, 10, 19, 20]
    assert [round_up(n) for n in (1, 64, 64.5)] == [64, 64, 128]


# ---- P2


def test_p2_parser_and_reference() -> None:
    assert check_parser(True, "hermes", True) == []
    (blind,) = check_parser(False, "hermes", True)
    assert (blind.id, blind.severity) == (Check.GRADER, Severity.CRITICAL)
    assert check_reference(None) == check_reference(1.0) == check_reference(0.6) == []
    assert check_reference(0.0)[0].severity is Severity.WARN
    assert check_reference(0.5)[0].numbers == {"reference_reward": 0.5}


def test_p2_format() -> None:
    silent = episode(attempted_calls=0)
    babbling = episode(attempted_calls=2, parse_errors=2)
    calling = episode(attempted_calls=2, tool_calls=2)
    assert check_format([], []) == []
    assert check_format([silent, episode(reward=1.0)], ["x"]) == []  # a success without calls is a success
    assert check_format([silent, calling], ["x"]) == []
    (none,) = check_format([silent] * 3, ["a", "b"])
    assert none.samples == ("a", "b")
    assert none.numbers == {"episodes": 3, "tool_call_rate": 0.0, "parse_ok_rate": None, "success": 0.0}
    (unread,) = check_format([babbling, silent], ["x"])
    assert unread.numbers["parse_ok_rate"] == 0.0
    assert "could be read" in unread.text
    assert check_format([silent, episode(reward=1.0, stop_reason=StopReason.ENVIRONMENT_ERROR)], ["x"]) != []


# ---- P3


def group(*ids: int) -> list[Episode]:
    return [episode(completion_ids=[i]) for i in ids]


def test_p3_diversity() -> None:
    assert check_diversity([], 1.0) == []
    assert check_diversity([group(1)], 1.0) == []
    # G = 8: fewer than 3 different ones on average
    assert check_diversity([group(1, 2, 3, 3, 3, 3, 3, 3)], 1.0) == []
    (alike,) = check_diversity([group(1, 2, 2, 2, 2, 2, 2, 2), group(*[1] * 8)], 0.2)
    assert alike.numbers == {"distinct_mean": 1.5, "group_size": 8, "temperature": 0.2}
    assert (alike.id, alike.severity) == (Check.DIVERSITY, Severity.WARN)
    assert check_diversity([group(1, 1)], 1.0) != []
    assert check_diversity([group(1, 2)], 1.0) == []


# ---- P4


def rewards(*values: float, valid: bool = True) -> list[Episode]:
    return [episode(reward=v, stop_reason=StopReason.FINISHED if valid else StopReason.TOOL_TIMEOUT) for v in values]


def test_p4_signal() -> None:
    assert check_signal([]) == []
    assert check_signal([rewards(1, 0), *[rewards(1, 1)] * 9]) == []  # one of ten is a tenth
    (easy,) = check_signal([rewards(1, 0), *[rewards(1, 1)] * 10])
    assert easy.numbers == {"groups": 11, "with_signal": 1 / 11, "all_right": 10, "all_wrong": 0}
    assert "harder" in easy.advice
    (hard,) = check_signal([rewards(0, 0), rewards(0, 0), rewards(1, 1)])
    assert hard.numbers["all_wrong"] == 2
    assert "easier" in hard.advice
    broken = episode(reward=1.0, stop_reason=StopReason.ENVIRONMENT_ERROR)
    assert check_signal([[broken, *rewards(0, 0)]]) != []  # no evidence, so no spread
    assert check_signal([[broken, *rewards(0)]]) == []


# ---- P5


def test_p5_template() -> None:
    assert check_template(True) == []
    assert [(n.id, n.severity) for n in check_template(False)] == [(Check.TEMPLATE, Severity.INFO)]


# ---- P6


def test_p6_memory() -> None:
    need = MemoryNeed(gradients=1 * GB, moments=2 * GB, copies=1 * GB, activations=3 * GB, logits=1 * GB, cache=2 * GB)
    assert need.peak == 8 * GB  # 4 standing, and the pass (4) is larger than the cache (2)
    assert check_memory(need, 10 * GB) == []
    assert check_memory(need, 10 * GB - 1)[0].severity is Severity.WARN
    assert check_memory(need, 8 * GB)[0].severity is Severity.WARN
    (out,) = check_memory(need, 8 * GB - 1)
    assert (out.id, out.severity) == (Check.MEMORY, Severity.CRITICAL)
    assert "lora" in out.advice
    assert "num_generations" in check_memory(replace(need, cache=9 * GB), 10 * GB)[0].advice
    assert "micro_batch_tokens" in check_memory(replace(need, activations=9 * GB), 10 * GB)[0].advice


def test_p6_need_of_tiny_by_hand(tiny: LoadedModel) -> None:
    config = TrainingConfig(batch_size=2, num_generations=3, max_completion_tokens=100, validate_every=0)
    n = sum(p.numel() for p in tiny.model.parameters())
    need = memory_need(config, tiny, prompt=50, completion=20)
    assert (need.weights, need.gradients, need.moments, need.copies) == (4 * n, 4 * n, 8 * n, 0)
    # keys and values, 4 layers, 2 key heads of size 32, 4 bytes; 6 rows of 50 + 100 tokens
    assert need.cache == 2 * 4 * 2 * 32 * 4 * 6 * 150
    # 2 prompts of 50 and 6 completions of 20 in one pass; 6 · 20 tokens of 560 logits, three arrays
    assert need.activations == 220 * activation_bytes(tiny.model.config)
    assert need.logits == 3 * 4 * 120 * 560
    more = TrainingConfig(beta=0.1, validate_every=5)
    assert memory_need(more, tiny, prompt=50, completion=20).copies == 2 * 4 * n


def test_p6_activations_are_about_what_autograd_holds(tiny: LoadedModel) -> None:
    """Plain attention keeps more than ours; the estimate must be within a factor of two of what is saved."""
    held: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    tokens = 200
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        output = tiny.model.base_model(input_ids=torch.zeros(1, tokens, dtype=torch.long)).last_hidden_state
    estimate = tokens * activation_bytes(tiny.model.config)
    assert output.requires_grad
    assert 0.5 < estimate / sum(held.values()) < 2.0


def test_free_memory_is_what_the_container_leaves(tmp_path: Path) -> None:
    assert module._container_leaves(tmp_path) is None
    for name, text in {
        "memory.max": "1000\n",
        "memory.current": "900\n",
        "memory.stat": "anon 1\ninactive_file 200\nactive_file 50\n",
    }.items():
        (tmp_path / name).write_text(text)
    assert module._container_leaves(tmp_path) == 350
    (tmp_path / "memory.max").write_text("max\n")
    assert module._container_leaves(tmp_path) is None
    assert available_bytes(torch.device("cpu")) > 0


# ---- the whole


class Run:
    """What `preflight` is called with."""

    def __init__(self, tiny: LoadedModel, spec: EnvironmentSpec | str = "calculator", **settings: Any) -> None:
        parse = settings.pop("parse", None)
        tasks = settings.pop("tasks", None)
        sizes = {"problems": 16, "test_problems": 8, "validation_problems": 8}
        self.config = TrainingConfig.model_validate(sizes | settings)
        self.loaded = tiny
        self.spec = registry.load(spec) if isinstance(spec, str) else spec
        self.tasks: Tasks = tasks or build_tasks(self.config, self.spec, Path())
        self.engine = RolloutEngine(
            tiny.model, tiny.tokenizer, self.spec, limits_of(self.config), seed=self.config.seed, parse=parse
        )

    def look(self) -> list[Notice]:
        return preflight(self.config, self.loaded, self.spec, self.tasks, self.engine)


def test_a_good_run_gets_no_notice_and_costs_little(tiny: LoadedModel) -> None:
    run = Run(tiny)
    began = time.process_time()
    assert run.look() == []
    assert time.process_time() - began < 6  # measured 0.9 s on an idle core; the machine may be busy


def test_a_run_is_the_same_with_and_without_a_look(tiny: LoadedModel) -> None:
    run = Run(tiny)
    requests = group_requests(run.tasks.train[0], run.spec.system_prompt, 0, 0, 4)
    before = [e.completion_ids for e in run.engine.run(requests, 1.0)]
    python, torch_state = random.getstate(), torch.get_rng_state()
    run.look()
    assert random.getstate() == python
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert [e.completion_ids for e in run.engine.run(requests, 1.0)] == before
    assert run.config.planned_steps < PROBE_OCCURRENCE


def of(notices: list[Notice], check: Check) -> list[Notice]:
    return [notice for notice in notices if notice.id is check]


def test_a_cap_that_cuts_everything_is_seen(tiny: LoadedModel) -> None:
    (notice,) = of(Run(tiny, max_completion_tokens=6).look(), Check.LENGTH)
    assert notice.numbers["truncated"] == 1.0
    assert notice.severity is Severity.WARN


def test_a_prompt_beyond_the_context_is_refused_before_anything_is_played(tiny: LoadedModel, monkeypatch: Any) -> None:
    run = Run(tiny)
    monkeypatch.setattr(module, "context_of", lambda loaded: 100)
    monkeypatch.setattr(run.engine, "run", lambda *_: pytest.fail("played"))
    notices = run.look()
    assert [(n.id, n.severity) for n in notices] == [(Check.LENGTH, Severity.CRITICAL)]
    with pytest.raises(PreflightFault, match=r"longest prompt has \d+ tokens.*longer context"):
        refuse(notices)


def test_a_parser_that_reads_another_format_is_refused(tiny: LoadedModel) -> None:
    run = Run(tiny, parse=lambda text: ParsedTurn(text))
    notices = run.look()
    assert [(n.id, n.severity) for n in notices] == [(Check.GRADER, Severity.CRITICAL)]
    with pytest.raises(PreflightFault, match="cannot read the tool call"):
        refuse(notices)


def test_too_little_memory_is_refused_before_anything_is_played(tiny: LoadedModel, monkeypatch: Any) -> None:
    run = Run(tiny)
    monkeypatch.setattr(module, "available_bytes", lambda device: 10 * 2**20)  # gradients and moments take 12 MB
    monkeypatch.setattr(run.engine, "run", lambda *_: pytest.fail("played"))
    assert [(n.id, n.severity) for n in run.look()] == [(Check.MEMORY, Severity.CRITICAL)]
    monkeypatch.undo()
    monkeypatch.setattr(module, "available_bytes", lambda device: 20 * 2**20)  # the standing part fits, the peak not
    assert of(run.look(), Check.MEMORY)[0].severity is Severity.CRITICAL


def test_temperature_near_zero_has_no_diversity_and_no_signal(tiny: LoadedModel) -> None:
    notices = Run(tiny, temperature=0.001).look()
    assert [n.id for n in notices] == [Check.DIVERSITY, Check.SIGNAL]


class Grudging:
    """Never rewards."""

    system_prompt = "Solve the task with the tools."

    def reset(self, **row: object) -> None: ...

    def get_reward(self) -> float:
        return 0.0

    def finish(self, answer: str) -> str:
        """
        Submit the final answer.

        Args:
            answer: The final number.
        """
        return "done"


def test_a_grader_that_refuses_the_reference_is_seen(tiny: LoadedModel) -> None:
    rows = [{"prompt": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(8)]
    run = Run(tiny, EnvironmentSpec.of("grudging", Grudging), tasks=Tasks(rows, rows, rows), max_completion_tokens=64)
    notices = run.look()
    assert of(notices, Check.GRADER)[0].numbers == {"reference_reward": 0.0}
    assert of(notices, Check.SIGNAL)[0].numbers["all_wrong"] == 6


def test_a_reference_that_cannot_be_known_is_left_alone(tiny: LoadedModel) -> None:
    rows = [{"prompt": f"What is {i} + 1?"} for i in range(8)]
    run = Run(tiny, EnvironmentSpec.of("grudging", Grudging), tasks=Tasks(rows, rows, rows), max_completion_tokens=64)
    assert not any("reference_reward" in n.numbers for n in run.look())


@pytest.mark.parametrize("name", ["calculator", "lookup", "house_rules"])
def test_the_shipped_environments_reward_their_own_answers(tiny: LoadedModel, name: str) -> None:
    run = Run(tiny, name)
    row = run.tasks.train[0]
    assert module._reference_reward(run.spec, run.engine, row, None, 5.0) == 1.0


def test_an_own_solution_counts_more_than_the_answer(tiny: LoadedModel) -> None:
    """The answer alone is right, but the solution that the environment states is wrong."""
    run = Run(tiny)
    wrong = replace(run.spec, solution=lambda row: [("calculate", {"expression": "1"}), ("finish", {"answer": "x"})])
    assert module._reference_reward(wrong, run.engine, run.tasks.train[0], None, 5.0) == 0.0
    no_answer = replace(run.spec, solution=lambda row: [("calculate", {"expression": "("})])
    assert module._reference_reward(no_answer, run.engine, run.tasks.train[0], None, 5.0) is None
    only_answer = replace(run.spec, solution=None)
    assert module._reference_reward(only_answer, run.engine, run.tasks.train[0], None, 5.0) == 1.0


def test_context_is_the_models_or_the_tokenizers(tiny: LoadedModel, monkeypatch: Any) -> None:
    assert context_of(tiny) == 4096
    monkeypatch.setattr(tiny.tokenizer, "model_max_length", 512)
    assert context_of(tiny) == 512


def test_a_notice_is_an_event() -> None:
    notice = check_format([episode()], ["said"])[0]
    assert notice.fields() == {
        "id": "P2",
        "severity": "warn",
        "text": notice.text,
        "advice": notice.advice,
        "numbers": notice.numbers,
        "samples": ["said"],
    }
    refuse([notice])  # not critical
