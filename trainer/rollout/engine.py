"""The rollout engine: all episodes of a step in one batch, key/value cache kept across turns, rows leave as they end.

Environment text is appended as ids and fed through the same decode loop (`decoding.py`) while other rows go on
sampling; so a row never waits for another.
A failing environment costs its own episode: every request comes back as exactly one Episode.
"""

import inspect
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainer.envs.base import EnvironmentSpec
from trainer.envs.rewards import EpisodeReward, episode_reward
from trainer.experience.block import with_experience
from trainer.models.adapters import unwrapped
from trainer.models.parsing import ParsedTurn
from trainer.models.shared_prefix import common_prefix
from trainer.rollout.backends import backend_for, chunked
from trainer.rollout.decoding import Decoding, Row, slots_of
from trainer.rollout.drafts import Drafts, example_calls
from trainer.rollout.rendering import Renderer, tool_schemas
from trainer.rollout.sampler import stream
from trainer.rollout.tools import ToolRunner, ToolTimeout
from trainer.rollout.types import Episode, EpisodeRequest, Guidance, Limits, StopReason


@dataclass
class Clock:
    """Seconds spent since the engine was made."""

    generate: float = 0.0
    environment: float = 0.0


def end_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends a turn: the generation config's and the tokenizer's."""
    ids = model.generation_config.eos_token_id if model.generation_config else None
    several = ids if isinstance(ids, list) else [ids]
    return frozenset(int(i) for i in (*several, tokenizer.eos_token_id) if i is not None)


class RolloutEngine:
    """Plays episodes of one environment with one model."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        spec: EnvironmentSpec,
        limits: Limits,
        *,
        seed: int,
        reward: Callable[..., Any] | None = None,
        on_turn: Callable[[], None] | None = None,
        parse: Callable[[str], ParsedTurn] | None = None,
        max_rows: int = 256,
        top_p: float = 1.0,
        top_k: int = 0,
    ) -> None:
        """`on_turn` is called at least once a turn (heartbeat). `max_rows`: larger requests are played in parts.
        `parse` instead of the parser that the chat template calls for. `top_p`, `top_k` cut the sampling distribution:
        then it is another one than the one that training raises or lowers."""
        self.model, self.tokenizer, self.spec, self.limits = unwrapped(model), tokenizer, spec, limits
        self.seed, self.on_turn, self.max_rows = seed, on_turn, max_rows
        self.reward: EpisodeReward = episode_reward(reward, spec)
        self._own_reward = reward is None
        self.renderer = Renderer(tokenizer, tool_schemas(spec))
        self.parse = parse or self.renderer.parse
        self.ends = end_ids(self.model, tokenizer) | self.renderer.end_ids
        self.stops = self.renderer.stops
        # a token is at least one byte, so a stop text lies within that many tokens
        self._stop_tokens = max((len(stop.encode()) for stop in self.stops), default=0)
        self.clock = Clock()
        self._cut = (top_p, top_k)
        self._examples = example_calls(self.renderer)
        self._tools = ToolRunner(limits.tool_timeout_s, spec.timeouts)

    def run(self, requests: list[EpisodeRequest], temperature: float) -> list[Episode]:
        """Plays the requests; leaves the model in the mode it was in. The order of the result is the requests'."""
        training = self.model.training
        self.model.eval()
        try:
            with torch.inference_mode():
                episodes: list[Episode] = []
                for at in range(0, len(requests), self.max_rows):
                    episodes += self._play(requests[at : at + self.max_rows], temperature)
                return episodes
        finally:
            self.model.train(training)

    # ---- one batch

    def _play(self, requests: list[EpisodeRequest], temperature: float) -> list[Episode]:
        began = time.perf_counter()
        waited = self.clock.environment
        rows = [self._begin(request) for request in requests]
        alive = [row for row in rows if not row.done]
        if alive:
            self._decode(alive, temperature)
        for row in rows:
            self._grade(row)
        self.clock.generate += time.perf_counter() - began - (self.clock.environment - waited)
        return [row.episode for row in rows]

    def _begin(self, request: EpisodeRequest) -> Row:
        began = time.perf_counter()
        messages = list(request.messages)
        episode = Episode(request, [])
        built: list[Any] = []
        try:
            observation = self._tools.own("reset", lambda: self._reset(request, built))
            if observation:
                last = messages[-1]
                messages[-1] = dict(last, content=f"{last['content']}\n\n{observation}")
        except (Exception, SystemExit) as error:
            self._fail(episode, "reset", error)
        episode.messages = messages
        episode.prompt_ids = list(self.renderer.prompt_ids(messages))
        if request.guidance is not None and episode.valid:
            self._guide(episode, request.guidance)
        self.clock.environment += time.perf_counter() - began
        environment = built[0] if built else None  # one whose reset failed is closed as well
        row = Row(episode, environment, self._uniforms(request, 0), began=began)
        row.done = not episode.valid
        return row

    def _reset(self, request: EpisodeRequest, built: list[Any]) -> Any:
        """The first observation of a fresh environment, which is put into `built`."""
        built.append(self.spec.factory())
        environment = built[0]
        if "seed" in dir(environment):
            environment.seed(self.seed + request.task)
        return environment.reset(**self.spec.reset_arguments(request.messages, request.row))

    def _guide(self, episode: Episode, guidance: Guidance) -> None:
        """Puts lessons into the prompt; nothing happens where the prompt has no place that shows them whole."""
        if not guidance.text or all(message["role"] != "user" for message in episode.messages):
            return
        guided = with_experience(episode.messages, guidance.text)
        if guidance.text not in self.renderer.prompt_text(guided):
            return
        episode.plain_prompt_ids = episode.prompt_ids
        episode.messages, episode.prompt_ids = guided, list(self.renderer.prompt_ids(guided))

    def _fail(self, episode: Episode, where: str, error: BaseException) -> None:
        episode.stop_reason = StopReason.ENVIRONMENT_ERROR
        episode.error = f"{where}: {type(error).__name__}: {error}"
        episode.reward = 0.0

    def _uniforms(self, request: EpisodeRequest, turn: int) -> np.ndarray:
        return stream(
            self.seed, request.task, request.occurrence, request.generation, turn, self.limits.max_completion_tokens
        )

    def _decode(self, alive: list[Row], temperature: float) -> None:
        prompts: dict[tuple[int, ...], int] = {}
        for row in alive:
            row.group = prompts.setdefault(tuple(row.episode.prompt_ids), len(prompts))
            row.last = row.episode.prompt_ids[-1]
        texts = [list(p) for p in prompts]
        backend = chunked(backend_for(self.model))
        slots = slots_of(alive, backend.copies)
        backend.begin(texts, [rows[0].group for rows in slots], self.limits.max_completion_tokens)
        drafts = Drafts(self._examples)
        drafts.read_prompts(texts, min(common_prefix(texts), min(map(len, texts)) - 1))
        limit = self.limits.max_completion_tokens
        Decoding(backend, slots, drafts, temperature, limit, self._ends_turn, self._end_turns, self._cut).run()

    def _ends_turn(self, row: Row, token: int) -> bool:
        return token in self.ends or self._at_stop(row)

    def _end_turns(self, rows: list[Row]) -> None:
        began = time.perf_counter()
        for row in rows:
            self._end_turn(row)
        if self.on_turn is not None:
            self.on_turn()
        self.clock.environment += time.perf_counter() - began

    # ---- turns

    def _at_stop(self, row: Row) -> bool:
        if not self.stops:
            return False
        ids = row.episode.completion_ids
        tail = self._text(ids[max(row.turn_start, len(ids) - self._stop_tokens) :])
        return any(stop in tail for stop in self.stops)

    def _text(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, clean_up_tokenization_spaces=False)  # it would change arguments
        return text

    def _end_turn(self, row: Row) -> None:
        episode = row.episode
        episode.turns += 1
        ids = episode.completion_ids[row.turn_start :]
        closed = ids[-1] in self.ends
        text = self._text(ids[:-1] if closed else ids)
        cuts = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        text = text[: min(cuts)] if cuts else text
        complete = closed or bool(cuts)
        turn = self.parse(text)
        episode.messages.append(_assistant(turn, text))
        if not complete:
            self._stop(row, StopReason.MAX_TOKENS)
            return
        if not turn.attempted:
            self._stop(row, StopReason.COMPLETED)
            return
        episode.attempted_calls += 1
        answers = self._answers(row, turn)
        if row.done:
            return
        for answer in answers:
            episode.messages.append({"role": "tool", "content": answer})
        if self._finished(row):
            return
        if row.parse_errors_in_a_row >= self.limits.max_parse_errors:
            self._stop(row, StopReason.PARSE_ERRORS)
        elif time.perf_counter() - row.began > self.limits.max_seconds:
            self._stop(row, StopReason.MAX_SECONDS)
        elif episode.turns >= self.limits.max_turns:
            self._stop(row, StopReason.MAX_TURNS)
        else:
            self._continue(row, self.renderer.observation_ids(answers, closed=closed))

    def _answers(self, row: Row, turn: ParsedTurn) -> list[str]:
        """One text for each call, in order, then one for each call that could not be read."""
        episode = row.episode
        answers = []
        unknown = False
        for number, call in enumerate(turn.calls):
            if number >= self.limits.max_calls_per_turn:
                answers.append(f"Error: at most {self.limits.max_calls_per_turn} calls in one turn")
                continue
            try:
                text, good = self._tools.call(row.environment, self.spec.tools, call)
            except ToolTimeout as timeout:
                episode.error = f"{call.name}: {timeout}"
                self._stop(row, StopReason.TOOL_TIMEOUT)
                return answers
            unknown |= call.name not in self.spec.tools
            episode.tool_calls += good
            episode.tool_errors += not good and call.name in self.spec.tools
            limit = self.limits.max_observation_characters
            answers.append(text if len(text) <= limit else f"{text[:limit]} … ({len(text) - limit} characters cut)")
        answers += [f"Error: {error}" for error in turn.errors]
        if turn.errors or unknown:
            episode.parse_errors += 1
            row.parse_errors_in_a_row += 1
        else:
            row.parse_errors_in_a_row = 0
        return answers

    def _finished(self, row: Row) -> bool:
        try:
            finished = "finished" in dir(row.environment) and bool(self._value_of_finished(row.environment))
        except (Exception, SystemExit) as error:
            self._fail(row.episode, "finished", error)
            row.done = True
            return True
        if finished:
            self._stop(row, StopReason.FINISHED)
        return finished

    def _value_of_finished(self, environment: Any) -> Any:
        if isinstance(inspect.getattr_static(environment, "finished", None), bool):  # nothing is called
            return environment.finished
        return self._tools.own("finished", lambda: _value(environment.finished))

    def _continue(self, row: Row, observation: list[int]) -> None:
        episode = row.episode
        if len(episode.completion_ids) + len(observation) + 1 > self.limits.max_completion_tokens:
            self._stop(row, StopReason.MAX_TOKENS)
            return
        row.forced.extend(observation)
        row.uniforms = self._uniforms(episode.request, episode.turns)

    def _stop(self, row: Row, reason: StopReason) -> None:
        row.episode.stop_reason = reason
        row.done = True

    # ---- the end

    def _grade(self, row: Row) -> None:
        episode = row.episode
        began = time.perf_counter()
        if episode.valid:
            try:
                reward = self.reward_of(episode, row.environment)
                if math.isfinite(reward):
                    episode.reward = reward
                else:
                    self._fail(episode, "get_reward", ValueError(f"the reward is {reward}"))
            except (Exception, SystemExit) as error:
                self._fail(episode, "get_reward", error)
        if row.environment is not None and "close" in dir(row.environment):
            try:
                self._tools.own("close", row.environment.close)
            except (Exception, SystemExit) as error:
                episode.error = episode.error or f"close: {type(error).__name__}: {error}"
        if not episode.completion_ids:  # TRL needs one token a row; mask 0 keeps it out of the loss
            episode.completion_ids, episode.mask, episode.logprobs = [min(self.ends)], [0], [0.0]
        now = time.perf_counter()
        episode.seconds = now - row.began
        self.clock.environment += now - began

    def reward_of(self, episode: Episode, environment: Any) -> float:
        """What the episode earns. A reward function of the user runs in this thread, without a limit: graders of
        mathematics limit themselves by alarms, which no other thread can set."""
        if not self._own_reward:
            return self.reward(episode, environment)
        return self._tools.own("get_reward", lambda: self.reward(episode, environment))


def _value(member: Any) -> Any:
    return member() if callable(member) else member


def _assistant(turn: ParsedTurn, text: str) -> dict[str, Any]:
    """The turn as a chat message; text that could not be read is kept as it is."""
    if turn.errors or not turn.calls:
        return {"role": "assistant", "content": text}
    calls = [{"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in turn.calls]
    thinking = {"reasoning_content": turn.thinking} if turn.thinking else {}
    return {"role": "assistant", "content": turn.content, **thinking, "tool_calls": calls}
