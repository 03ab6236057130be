"""A look at a run before its first step: measures, lets the rules judge (models/preflight_rules.py), costs seconds.

What cannot work is found without playing anything (context, parser, memory that the weights' gradients and moments
need); only then one small batch of episodes is played with the run's own engine. Their random streams are keyed with an
occurrence that training never reaches, and the process's generators are put back, so the run that follows is the same
with and without this.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from trainer.config import TrainingConfig
from trainer.envs.base import EnvironmentSpec, Row
from trainer.models.load import LoadedModel
from trainer.models.memory import activation_bytes, plan_pass
from trainer.models.packed_logps import LOGIT_ELEMENTS
from trainer.models.parsing import ToolCall
from trainer.models.parsing.select import written_call
from trainer.models.preflight_rules import (
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
)
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.toolless import hermes_text
from trainer.rollout.tools import ToolRunner
from trainer.rollout.types import Episode, EpisodeRequest
from trainer.runs.detectors.types import Severity
from trainer.tasks import Tasks, conversation, group_requests

PROBE_PROBLEMS = 6
"""Groups of the probe."""

PROBE_GENERATIONS = 4
"""Episodes of a group at most; 24 in all take about a second on `tiny` on two busy cores."""

PROBE_OCCURRENCE = 2**31
"""Key of the probe's random streams: no problem is drawn that often in a run."""

LONGEST = 16
"""So many of the problems with the most characters are rendered to find the longest prompt."""

SAMPLES = 2
SAMPLE_CHARACTERS = 600


class PreflightFault(ValueError):
    """A run that cannot work: says why and what to change."""


def refuse(notices: Sequence[Notice]) -> None:
    """Raises PreflightFault where a notice is critical."""
    fatal = [notice for notice in notices if notice.severity is Severity.CRITICAL]
    if fatal:
        raise PreflightFault(" ".join(f"{notice.text} {notice.advice}" for notice in fatal))


def preflight(
    config: TrainingConfig, loaded: LoadedModel, spec: EnvironmentSpec, tasks: Tasks, engine: RolloutEngine
) -> list[Notice]:
    """What is to be said about a run before it starts; empty where all is well. Episodes are played only where nothing
    critical was found before. Raises TemplateFault where a prompt cannot be rendered."""
    system = config.system_prompt or spec.system_prompt
    longest = _longest_prompt(engine, tasks, system)
    context, cap = context_of(loaded), config.max_completion_tokens
    available = available_bytes(loaded.device)
    notices = check_context(longest, context, cap)
    notices += check_parser(_readable(engine), engine.renderer.parser.format.value, engine.renderer.parser.native)
    notices += check_template(engine.renderer.prefix_preserving)
    standing = memory_need(config, loaded, prompt=longest, completion=0)
    if standing.standing > available:
        notices += check_memory(standing, available)
    if any(notice.severity is Severity.CRITICAL for notice in notices):
        return notices
    notices += check_reference(_reference_reward(spec, engine, tasks.train[0], system, config.tool_timeout_s))
    groups = probe(config, tasks, engine, system)
    episodes = [episode for group in groups for episode in group]
    prompt = max([longest, *(len(e.prompt_ids) for e in episodes)])
    if prompt > longest:  # an environment's first observation stands in the prompt, too
        notices = [n for n in notices if n.id != "P1"] + check_context(prompt, context, cap)
    notices += check_length(episodes, cap, None if context is None else context - prompt)
    notices += check_format(episodes, [_said(engine, e) for e in episodes[:SAMPLES]])
    notices += check_diversity(groups, config.temperature)
    notices += check_signal(groups)
    p95 = quantile([len(e.completion_ids) for e in episodes], 0.95)
    notices += check_memory(memory_need(config, loaded, prompt=prompt, completion=p95), available)
    return notices


# ---- the probe


def probe(config: TrainingConfig, tasks: Tasks, engine: RolloutEngine, system: str | None) -> list[list[Episode]]:
    """A few groups at the training temperature, from problems all over the training set."""
    count, size = min(PROBE_PROBLEMS, len(tasks.train)), min(PROBE_GENERATIONS, config.num_generations)
    problems = [i * len(tasks.train) // count for i in range(count)]
    requests: list[EpisodeRequest] = []
    for problem in problems:
        requests += group_requests(tasks.train[problem], system, problem, PROBE_OCCURRENCE, size)
    with _generators_kept():
        episodes = engine.run(requests, config.temperature)
    return [episodes[at : at + size] for at in range(0, len(episodes), size)]


@contextmanager
def _generators_kept() -> Iterator[None]:
    """Puts back the process's random generators, which an environment may use."""
    python, numpy, torch_state = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torch_state)


def _said(engine: RolloutEngine, episode: Episode) -> str:
    text = str(engine.tokenizer.decode(episode.completion_ids))
    return text if len(text) <= SAMPLE_CHARACTERS else f"{text[:SAMPLE_CHARACTERS]} …"


# ---- lengths


def context_of(loaded: LoadedModel) -> int | None:
    """Tokens that the model was made for, or None where it does not say."""
    stated = loaded.model.config.get_text_config().to_dict().get("max_position_embeddings")
    limits = [stated, loaded.tokenizer.model_max_length]
    known = [int(n) for n in limits if isinstance(n, int) and 0 < n < 10**9]  # no limit is written as 10^30
    return min(known) if known else None


def _longest_prompt(engine: RolloutEngine, tasks: Tasks, system: str | None) -> int:
    rows = sorted((*tasks.train, *tasks.validation, *tasks.test), key=lambda row: -len(str(row["prompt"])))
    return max(len(engine.renderer.prompt_ids(conversation(row, system))) for row in rows[:LONGEST])


# ---- parser and grader

_EXAMPLES: dict[str, Any] = {
    "string": 'say "é"',
    "integer": 3,
    "number": 0.5,
    "boolean": True,
    "object": {"a": 1},
    "array": [1, "b"],
}


def _example(schema: dict[str, Any]) -> Any:
    for option in schema.get("anyOf", schema.get("oneOf", [])):
        return _example(option)
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "string")
    return _EXAMPLES.get(kind if isinstance(kind, str) else kind[0], "x")


def _readable(engine: RolloutEngine) -> bool:
    """Whether the engine's parser reads a call of every tool in the form that the model is shown."""
    renderer = engine.renderer
    for tool in renderer.tools:
        function = tool["function"]
        properties = function.get("parameters", {}).get("properties", {})
        call = ToolCall(function["name"], {key: _example(schema) for key, schema in properties.items()})
        native = renderer.parser.native
        text = written_call(renderer.tokenizer, call, renderer.tools) if native else hermes_text(call)
        turn = engine.parse(text or "")
        if turn.calls != [call] or turn.errors:
            return False
    return True


def _reference_reward(
    spec: EnvironmentSpec, engine: RolloutEngine, row: Row, system: str | None, timeout_s: float
) -> float | None:
    """The reward for a problem's own solution; None where none is known, or where playing it failed, which the
    probe's episodes will show."""
    request = group_requests(row, system, 0, PROBE_OCCURRENCE, 1)[0]
    with _generators_kept():
        try:
            calls = _reference_calls(spec, engine, row, request)
            if not calls:
                return None
            environment, tools = spec.factory(), ToolRunner(timeout_s, spec.timeouts)
            tools.own("reset", lambda: environment.reset(**spec.reset_arguments(request.messages, request.row)))
            good = all(tools.call(environment, spec.tools, call)[1] for call in calls)
            reward = engine.reward_of(_episode_of(engine, request, calls), environment) if good else None
            if "close" in dir(environment):
                tools.own("close", environment.close)
        except (Exception, SystemExit):
            return None
    return reward


def _reference_calls(spec: EnvironmentSpec, engine: RolloutEngine, row: Row, request: EpisodeRequest) -> list[ToolCall]:
    """The environment's own solution, else the row's `answer` given to the only tool that takes one, else none."""
    if spec.solution is not None:
        question = {**row, "prompt": request.messages[-1]["content"]}  # worked examples may stand before it
        return [ToolCall(name, arguments) for name, arguments in spec.solution(question)]
    takes = [
        (tool["function"]["name"], tool["function"]["parameters"]["properties"]["answer"])
        for tool in engine.renderer.tools
        if "answer" in tool["function"].get("parameters", {}).get("properties", {})
    ]
    if "answer" not in row or len(takes) != 1:
        return []
    name, schema = takes[0]
    return [ToolCall(name, {"answer": str(row["answer"]) if schema.get("type") == "string" else row["answer"]})]


def _episode_of(engine: RolloutEngine, request: EpisodeRequest, calls: Sequence[ToolCall]) -> Episode:
    """What a reward function may look at."""
    episode = Episode(request, engine.renderer.prompt_ids(request.messages))
    shown = [{"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls]
    episode.messages = [*request.messages, {"role": "assistant", "content": "", "tool_calls": shown}]
    return episode


# ---- memory


def memory_need(config: TrainingConfig, loaded: LoadedModel, *, prompt: int, completion: int) -> MemoryNeed:
    """Bytes that a run with episodes of these lengths (tokens) takes.

    Gradients and AdamW's two moments: one element each per trained parameter. Activations: what one pass holds
    (models/memory.py), with recomputation only each layer's input and one layer whole. Logits: three float32 arrays
    (logits, log-probabilities, their exponentials). Cache: two vectors of every key head in every layer, for each
    row's prompt and full cap.
    """
    text = loaded.model.config.get_text_config()
    element = loaded.dtype.itemsize
    parameters = list(loaded.model.parameters())
    weights = sum(p.numel() * p.element_size() for p in parameters)
    trained = sum(p.numel() * p.element_size() for p in parameters if p.requires_grad)
    adapters = any(not p.requires_grad for p in parameters)
    copies = (config.validate_every > 0) + (config.beta > 0 and not adapters)
    rows = config.episodes_per_step
    tokens = config.batch_size * prompt + rows * completion
    budget, recompute = plan_pass(loaded, config.micro_batch_tokens)
    held = min(tokens, max(budget, prompt + completion))
    each = activation_bytes(loaded.model.config, element)
    layers = int(text.num_hidden_layers)
    if recompute:
        activations = held * layers * int(text.hidden_size) * element + held * each // layers
    else:
        activations = held * each
    heads = text.to_dict().get("num_key_value_heads") or text.num_attention_heads
    size = text.to_dict().get("head_dim") or text.hidden_size // text.num_attention_heads
    scored = min(held, rows * completion) * int(text.vocab_size)
    return MemoryNeed(
        weights=weights,
        gradients=trained,
        moments=2 * trained,
        copies=copies * weights,
        activations=activations,
        logits=3 * 4 * min(scored, LOGIT_ELEMENTS),
        cache=2 * layers * heads * size * element * rows * (prompt + config.max_completion_tokens),
    )


def available_bytes(device: torch.device) -> int:
    """Free memory of the device; on the CPU what the machine and the container (cgroup 2) leave."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    free = int(psutil.virtual_memory().available)
    left = _container_leaves(Path("/sys/fs/cgroup"))
    return free if left is None else min(free, left)


def _container_leaves(group: Path) -> int | None:
    """Bytes below the limit of a cgroup (version 2); files that are only cached count as free. None: no limit."""
    try:
        limit, used, detail = (
            (group / name).read_text(encoding="utf-8").strip()
            for name in ("memory.max", "memory.current", "memory.stat")
        )
    except OSError:
        return None
    if limit == "max":
        return None
    stat = dict(line.split(maxsplit=1) for line in detail.splitlines())
    cached = int(stat.get("inactive_file", 0)) + int(stat.get("active_file", 0))
    return max(0, int(limit) - int(used) + cached)
