"""Tools that find out how good a model is: a held-out evaluation, and one question."""

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
import anyio.to_thread
from mcp_types import CallToolResult
from pydantic import Field

from mcp_server.answers import Answer, Next, Part, answer, clip
from mcp_server.tooling import ToolSpec
from mcp_server.tools.monitoring import MAX_WAIT_S, PROGRESS_S
from mcp_server.tools.training import EvoContext, state_of

if TYPE_CHECKING:
    from mcp_server.jobs.evaluating import EvaluationView
    from trainer.evaluation.types import EvaluationResult

MAX_KINDS = 12
"""Kinds of problems in one answer."""

MAX_MESSAGES = 40

Target = Annotated[str | None, Field(description="Run id or model; default: the latest run.")]


class Score(Part):
    """Success of one model on one split."""

    model: str
    split: str
    n: int
    problems: int
    mean: float
    ci95: tuple[float, float]
    pass_at: dict[str, float] = Field(default_factory=dict)
    tool_call_rate: float | None = None
    parse_ok_rate: float | None = None
    correct_given_valid_call: float | None = None
    truncated_rate: float | None = None
    turns_mean: float | None = None


class Kind(Part):
    """Success on problems of one kind, by model."""

    kind: str
    split: str
    problems: int
    success: dict[str, float]


class Difference(Part):
    """Two models on the same problems."""

    split: str
    say: str
    difference: float
    ci95: tuple[float, float]
    test: str
    p: float
    verdict: str


class EvaluationAnswer(Answer):
    """What an evaluation found, or how far it is."""

    elastic = ("kinds", "warnings", "differences", "scores")

    evaluation_id: str
    state: str = Field(description="running, finished or failed.")
    doing: str | None = None
    env: str
    seeds: list[int]
    scores: list[Score] = Field(default_factory=list)
    differences: list[Difference] = Field(default_factory=list)
    kinds: list[Kind] = Field(default_factory=list)
    kinds_omitted: int = 0
    warnings: list[str] = Field(default_factory=list)
    failure: str | None = None
    folder: str


async def evaluate_model(
    ctx: EvoContext,
    target: Target = None,
    env: Annotated[str | None, Field(description="Default: the run's own.")] = None,
    difficulty: Literal["simple", "mixed", "hard"] | None = None,
    n: Annotated[int, Field(ge=1, le=10_000, description="Problems.")] = 128,
    samples: Annotated[int, Field(ge=1, le=64, description="Attempts at each (pass@k).")] = 1,
    split: Literal["test", "validation", "train", "all"] = "test",
    seeds: Annotated[list[int] | None, Field(max_length=20, description="Default: the run's own.")] = None,
    against: Annotated[list[str] | None, Field(max_length=5, description="More runs or models.")] = None,
    evaluation_id: Annotated[str | None, Field(description="Look at this one; start none.")] = None,
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 30,
) -> Annotated[CallToolResult, EvaluationAnswer]:
    """Use to find out how good a model is, or whether a run beats its base, on held-out problems: success with
    interval, pass@k, tool use, kinds of problems, paired test. Call it again with evaluation_id until finished."""
    from mcp_server.jobs.evaluating import EvaluationWish, look, start

    state = state_of(ctx)
    if evaluation_id is None:
        wish = EvaluationWish(target, env, difficulty, n, samples, split, tuple(seeds or ()), tuple(against or ()))
        view = await anyio.to_thread.run_sync(start, state, wish)
    else:
        view = await anyio.to_thread.run_sync(look, state, evaluation_id)
    began = time.monotonic()
    while view.standing.state == "running" and (waited := time.monotonic() - began) < wait_s:
        await ctx.report_progress(waited, wait_s, _doing(view))
        await anyio.sleep(min(PROGRESS_S, wait_s - waited))
        view = await anyio.to_thread.run_sync(look, state, view.plan.evaluation_id)
    return answer(_text(view), _answer(view))


def _doing(view: "EvaluationView") -> str:
    progress = view.standing.progress
    return "loading" if progress is None else f"{progress.done + 1}/{progress.parts}: {progress.doing}"


def _text(view: "EvaluationView") -> str:
    name = view.plan.evaluation_id
    if view.standing.failure is not None:
        return f"Evaluation {name} failed: {clip(view.standing.failure.message, 600)}"
    if view.standing.result is None:
        return f"Evaluation {name} is running ({_doing(view)})."
    result = view.standing.result
    if result.comparisons:
        return clip(" ".join(one.sentence for one in result.comparisons), 1000)
    split, found = next(iter(result.subjects[0].splits.items()))
    low, high = found.ci95
    return f"{result.target}: {split} success {found.mean:.3f} [{low:.3f}, {high:.3f}] on {found.problems} problems."


def _answer(view: "EvaluationView") -> EvaluationAnswer:
    plan, standing = view.plan, view.standing
    data = EvaluationAnswer(
        evaluation_id=plan.evaluation_id,
        state=standing.state,
        doing=_doing(view) if standing.state == "running" else None,
        env=plan.config.env,
        seeds=list(plan.seeds),
        failure=None if standing.failure is None else clip(standing.failure.message, 600),
        folder=str(view.folder),
        next=_next(view),
    )
    if standing.result is not None:
        _fill(data, standing.result)
    return data


def _fill(data: EvaluationAnswer, result: "EvaluationResult") -> None:
    data.warnings = [clip(one, 200) for one in result.warnings[:10]]
    for subject in result.subjects:
        for split, found in subject.splits.items():
            rates = ("tool_call_rate", "parse_ok_rate", "correct_given_valid_call", "truncated_rate", "turns_mean")
            values = found.model_dump(include=set(rates))
            data.scores.append(
                Score(
                    model=subject.name,
                    split=split,
                    n=found.n,
                    problems=found.problems,
                    mean=round(found.mean, 4),
                    ci95=_pair(found.ci95),
                    pass_at={k: round(rate.mean, 4) for k, rate in found.pass_at.items() if k != "1"},
                    **{name: None if value is None else round(value, 4) for name, value in values.items()},
                )
            )
    for one in result.comparisons:
        data.differences.append(
            Difference(
                split=one.split,
                say=one.sentence,
                difference=round(one.difference, 4),
                ci95=_pair(one.ci95),
                test=one.test,
                p=float(f"{one.p:.3g}"),
                verdict=one.verdict,
            )
        )
    kinds = _kinds(result)
    data.kinds, data.kinds_omitted = kinds[:MAX_KINDS], max(0, len(kinds) - MAX_KINDS)


def _kinds(result: "EvaluationResult") -> list[Kind]:
    found: dict[tuple[str, str], Kind] = {}
    for subject in result.subjects:
        for split, values in subject.splits.items():
            for one in values.categories if len(values.categories) > 1 else ():
                kind = found.setdefault(
                    (split, one.category), Kind(kind=one.category, split=split, problems=one.n, success={})
                )
                kind.success[subject.name] = round(one.mean, 4)
    return list(found.values())


def _pair(interval: tuple[float, float]) -> tuple[float, float]:
    return round(interval[0], 4), round(interval[1], 4)


def _next(view: "EvaluationView") -> Next:
    plan = view.plan
    if view.standing.state == "running":
        again = {"evaluation_id": plan.evaluation_id, "wait_s": 30}
        return Next(say="Wait for its end.", tool="evaluate_model", arguments=again)
    if view.standing.state == "failed":
        return Next(say="Correct what the message names and start it again.", tool="evaluate_model")
    if plan.run_id is not None:
        return Next(say="Ask what held the run back.", tool="analyze_run", arguments={"run_id": plan.run_id})
    return Next(say="Look at single answers.", tool="try_model", arguments={"target": plan.target, "problem": 0})


class Turn(Part):
    """One message: what the model said or called, or what a tool answered."""

    role: str
    content: str | None = None
    calls: list[str] = Field(default_factory=list)


class TryAnswer(Answer):
    """A conversation with a model."""

    elastic = ("turns", "prompt")

    prompt: str = Field(description="As the model got it.")
    turns: list[Turn]
    stop_reason: str
    reward: float | None = Field(None, description="Of a problem only.")
    tokens: int
    error: str | None = None
    seconds: float


async def try_model(
    ctx: EvoContext,
    target: Target = None,
    prompt: Annotated[str | None, Field(max_length=20_000)] = None,
    problem: Annotated[int | None, Field(ge=0, le=99_999, description="Number of a test problem, instead.")] = None,
    env: Annotated[str | None, Field(description="Whose tools it has.")] = None,
    temperature: Annotated[float, Field(gt=0, le=10)] = 1.0,
    seed: Annotated[int | None, Field(ge=0)] = None,
) -> Annotated[CallToolResult, TryAnswer]:
    """Use to see how a model works on one prompt or one test problem: its words, its tool calls and their answers. For
    how good it is, evaluate_model."""
    from mcp_server.jobs.evaluating import ask_model

    failure: Exception | None = None
    async with anyio.create_task_group() as waiting:
        waiting.start_soon(_tell_time, ctx)
        try:
            found = await anyio.to_thread.run_sync(
                ask_model, state_of(ctx), target, prompt, problem, env, temperature, seed, abandon_on_cancel=True
            )
        except Exception as error:  # raised below: a task group would wrap it
            failure = error
        waiting.cancel_scope.cancel()
    if failure is not None:
        raise failure
    turns = [_turn(one) for one in found.messages[:MAX_MESSAGES]]
    reward = "" if found.reward is None else f", reward {found.reward:g}"
    last = next((one.content for one in reversed(turns) if one.role == "assistant" and one.content), None)
    said = f": {clip(last, 300)}" if last else ""
    data = TryAnswer(
        prompt=clip(str(found.prompt[-1].get("content")) if found.prompt else "", 2000),
        turns=turns,
        stop_reason=found.stop_reason,
        reward=found.reward,
        tokens=found.tokens,
        error=None if found.error is None else clip(found.error, 600),
        seconds=found.seconds,
        next=Next(
            say="Measure it on many problems.",
            tool="evaluate_model",
            arguments={} if target is None else {"target": target},
        ),
    )
    return answer(f"{found.tool_calls} tool call(s), {found.stop_reason}{reward}{said}.", data)


async def _tell_time(ctx: EvoContext) -> None:
    """Progress while a model is loaded and answers, so that a client does not give up."""
    began = time.monotonic()
    while True:
        await ctx.report_progress(time.monotonic() - began, None, "the model is loaded and answers")
        await anyio.sleep(PROGRESS_S)


def _turn(message: dict[str, Any]) -> Turn:
    from trainer.evaluation.chat import message_lines

    content = message.get("content")
    return Turn(
        role=str(message.get("role")),
        content=clip(str(content), 1000) if content else None,
        calls=[clip(text, 300) for who, text in message_lines(message) if who == "call"],
    )


_SEE_RUNS = Next(say="See which runs there are.", tool="list_runs")

SPECS = [
    ToolSpec(evaluate_model, title="Evaluate a model", open_world=True, help_with=_SEE_RUNS),
    ToolSpec(try_model, title="Try a model", open_world=True, help_with=_SEE_RUNS),
]
