"""Conversations to token ids, ids in and ids out: a prompt is rendered once, then only environment text is appended.

Model tokens are never decoded and encoded again. What stands between the model's end-of-turn token and its next turn
is rendered from a dummy conversation (suffix rendering): the text behind the end token of a dummy assistant's turn. So
it does not matter what a template does to earlier turns (Qwen 3 drops their thinking): the ids are what was sampled.
`prefix_preserving` says whether the template itself would have kept the history.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import get_json_schema

from trainer.envs.base import EnvironmentFault, EnvironmentSpec
from trainer.models import templates
from trainer.models.parsing.select import parser_for
from trainer.models.parsing.types import ParsedTurn
from trainer.models.templates import MARKER, QUESTION, Message, TemplateFault
from trainer.rollout.toolless import describe_tools, results_message, spoken

AWKWARD = 'a"b\\c\nd <e> {f} \u00e9'
"""What a template that quotes or escapes tool results would change."""


def tool_schemas(spec: EnvironmentSpec) -> list[dict[str, Any]]:
    """JSON schemas of an environment's tools, as TRL renders them. Raises EnvironmentFault with the method's name."""
    members: dict[str, Callable[..., Any]] = dict(inspect.getmembers(spec.factory, predicate=inspect.isfunction))
    schemas = []
    for name in spec.tools:
        try:
            schemas.append(get_json_schema(members[name]))
        except Exception as error:  # transformers raises its own classes and plain ones; all mean: not describable
            raise EnvironmentFault(
                f"environment {spec.name}: tool `{name}` cannot be described to the model: {error}. Give every "
                "argument a type hint and a line under `Args:` in the docstring."
            ) from error
    return schemas


@dataclass(frozen=True)
class _Edges:
    """What surrounds `n` results where the template copies them as they are."""

    before: str
    between: tuple[str, ...]
    after: str
    strip: bool
    """The template trims a result."""

    def around(self, texts: Sequence[str]) -> str:
        parts = [text.strip() if self.strip else text for text in texts]
        joined = parts[0] + "".join(f"{gap}{part}" for gap, part in zip(self.between, parts[1:], strict=True))
        return f"{self.before}{joined}{self.after}"


class Renderer:
    """Renders prompts and environment turns of one model and one set of tools, and reads the model's turns."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tools: list[dict[str, Any]]) -> None:
        """Raises TemplateFault where the template cannot carry a conversation with results."""
        self.tokenizer = tokenizer
        self.tools = tools
        self.parser = parser_for(tokenizer)
        self._native_tools = tools if self.parser.native else []
        self._takes_system = templates.takes_system(tokenizer)
        self._turn_end = templates.turn_end(tokenizer)
        self._prompts: dict[str, list[int]] = {}
        self._edges: dict[int, _Edges | None] = {}
        self._suffix(["x"])  # says now what could not work later

    # ---- what ends a turn and what is in it

    @property
    def end_ids(self) -> frozenset[int]:
        """End tokens of the tokenizer and of the template."""
        return frozenset(i for i in (self._turn_end, self.tokenizer.eos_token_id) if i is not None)

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end a turn."""
        return self.parser.stops

    def parse(self, text: str) -> ParsedTurn:
        """A turn of the model, taken apart with the types of these tools."""
        return self.parser(text, self.tools)

    # ---- prompts

    def prompt_ids(self, messages: list[Message]) -> list[int]:
        """Ids of the conversation up to the point where the model speaks. Raises TemplateFault."""
        text = self.prompt_text(messages)
        if text not in self._prompts:
            self._prompts[text] = self._encode(text)
        return self._prompts[text]

    def prompt_text(self, messages: list[Message]) -> str:
        """The same as text."""
        adapted = self._adapted(messages)
        text = templates.attempt(self.tokenizer, adapted, self._native_tools, generate=True)
        if text is not None:
            return text
        # some templates insist that user and assistant alternate: neighbours of one role become one message
        return templates.render(self.tokenizer, _joined(adapted), self._native_tools, generate=True)

    def _adapted(self, messages: list[Message]) -> list[Message]:
        """Tools into the system message where the template ignores them; the system message into the user's where the
        template has no place for it."""
        if not self.parser.native:
            messages = spoken(messages)
        system, rest = (messages[0]["content"], messages[1:]) if _is_system(messages) else ("", messages)
        if self.tools and not self.parser.native:
            system = "\n\n".join(part for part in (system, describe_tools(self.tools)) if part)
        if not system:
            return messages
        if self._takes_system:
            return [{"role": "system", "content": system}, *rest]
        first = next((i for i, message in enumerate(rest) if message["role"] == "user"), None)
        if first is None:
            return [{"role": "user", "content": system}, *rest]
        merged = dict(rest[first], content=f"{system}\n\n{rest[first]['content']}")
        return [*rest[:first], merged, *rest[first + 1 :]]

    # ---- what the environment says

    def observation_ids(self, texts: list[str], *, closed: bool = True) -> list[int]:
        """Ids that answer a turn's calls, in call order, up to the model's next token.

        `closed`: the model ended its turn with an end token; otherwise (a stop text) the template's own comes first.
        """
        ids = self._encode(self._suffix(texts))
        if closed or not self.end_ids:
            return ids
        end = self._turn_end if self._turn_end is not None else self.tokenizer.eos_token_id
        return [end, *ids]

    def _suffix(self, texts: list[str]) -> str:
        count = len(texts)
        if count not in self._edges:
            self._edges[count] = self._measure(count)
        edges = self._edges[count]
        if edges is None or not all(text.strip() for text in texts):
            return self._rendered(texts)
        return edges.around(texts)

    def _measure(self, count: int) -> _Edges | None:
        """The surroundings of results, or None where the template does more than copy (Llama 3 writes JSON)."""
        probes = [f"{AWKWARD}{MARKER}{i}" for i in range(count)]
        text = self._rendered(probes)
        pieces = []
        for probe in probes:
            before, found, text = text.partition(probe)
            if not found:
                return None
            pieces.append(before)
        padded = [f" \n{probe}\n " for probe in probes]
        for strip in (False, True):
            edges = _Edges(pieces[0], tuple(pieces[1:]), text, strip)
            if edges.around(padded) == self._rendered(padded):
                return edges
        return None

    def _rendered(self, texts: list[str]) -> str:
        """The suffix from a rendered conversation: as tool messages where the template takes them, else as a user's."""
        for assistant, following in self._ways(texts):
            for tools in (self._native_tools, []):
                text = templates.attempt(self.tokenizer, [*QUESTION, assistant, *following], tools, generate=True)
                if text is None or MARKER not in text:
                    continue
                # texts of the environment stand behind the dummy's marker, so the first one is the dummy's last
                suffix = self._behind_turn(text, assistant)
                if suffix is not None and all(_shown(one, suffix) for one in texts):
                    return suffix
        raise TemplateFault(
            f"the chat template of {self.tokenizer.name_or_path} shows neither tool messages nor a second user message "
            "to the model, so it cannot hold a conversation with tools. Use another model (tiny, smollm2-135m, "
            "qwen-0.5b)."
        )

    def _ways(self, texts: list[str]) -> list[tuple[Message, list[Message]]]:
        """(a dummy assistant's turn, the messages that answer it), the most faithful first."""
        spoken: Message = {"role": "assistant", "content": MARKER}
        by_user = (spoken, [results_message(texts)])
        if not self.parser.native:
            return [by_user]
        ways = []
        for count in dict.fromkeys((len(texts), 1)):  # Llama 3 refuses several calls in one message
            calls = [templates.tool_call({"name": "x", "arguments": {}}, i) for i in range(count - 1)]
            calls.append(templates.tool_call({"name": "x", "arguments": {"x": MARKER}}, count - 1))
            results: list[Message] = [
                {"role": "tool", "name": "x", "tool_call_id": calls[min(i, count - 1)]["id"], "content": text}
                for i, text in enumerate(texts)
            ]
            ways.append(({"role": "assistant", "content": "", "tool_calls": calls}, results))
        return [*ways, (spoken, ways[0][1]), by_user]

    def _behind_turn(self, text: str, assistant: Message) -> str | None:
        """What follows the dummy's end token; where there is none, what follows its text."""
        rest = text.split(MARKER, 1)[1]
        behind = templates.after_end(self.tokenizer, rest)
        if self._turn_end is None and "tool_calls" not in assistant:
            return rest.removeprefix(str(self.tokenizer.eos_token))
        return behind

    @property
    def prefix_preserving(self) -> bool:
        """Whether the template keeps a turn as it was when results follow, also one with thinking in it."""
        assistant, following = self._ways(["x"])[0]
        thought = f"<think>\nt\n</think>\n\n{assistant['content']}"
        for turn in (assistant, dict(assistant, content=thought)):
            base = [*QUESTION, turn]
            before = templates.attempt(self.tokenizer, base, self._native_tools, generate=False)
            after = templates.attempt(self.tokenizer, [*base, *following], self._native_tools, generate=True)
            if before is None or after is None or not after.startswith(before.rstrip()):
                return False
        return True

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


def _joined(messages: list[Message]) -> list[Message]:
    """Text messages that follow one of the same role, added to it."""
    joined: list[Message] = []
    for message in messages:
        last = joined[-1] if joined else {}
        texts = [m.get("content") for m in (last, message)]
        if message["role"] == last.get("role") and all(isinstance(text, str) for text in texts):
            joined[-1] = dict(last, content="\n\n".join(str(text) for text in texts))
        else:
            joined.append(message)
    return joined


def _is_system(messages: list[Message]) -> bool:
    return bool(messages) and messages[0]["role"] == "system"


def _shown(text: str, suffix: str) -> bool:
    """Whether a result is in the rendering, quoted or not: judged by its longest plain word."""
    words = ["".join(c if c.isascii() and c.isalnum() else " " for c in word) for word in text.split()]
    plain = max((part for word in words for part in word.split()), key=len, default="")
    return plain in suffix
