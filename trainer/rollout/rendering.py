"""Conversations to token ids, ids in and ids out: a prompt is rendered once, then only environment text is appended.

Model tokens are never decoded and encoded again. What stands between the model's end-of-turn token and its next turn
is rendered from a dummy conversation (suffix rendering): the template's text for a tool message with a marker in it,
cut behind the assistant's end token. `prefix_preserving` says whether the real template keeps the history as it was;
templates that rewrite it (dropping earlier reasoning) still get the plain suffix, since the ids are what was sampled.
"""

import inspect
from collections.abc import Callable
from typing import Any

from transformers import PreTrainedTokenizerBase
from transformers.utils import get_json_schema

from trainer.envs.base import EnvironmentFault, EnvironmentSpec

Message = dict[str, Any]

MARKER = "\u241fOBSERVATION\u241f"


class TemplateFault(ValueError):
    """A chat template that cannot carry tool conversations; the text says what to use instead."""


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


class Renderer:
    """Renders prompts and environment turns of one model and one set of tools."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, tools: list[dict[str, Any]]) -> None:
        if not tokenizer.chat_template:
            raise TemplateFault(
                f"{tokenizer.name_or_path} has no chat template, so it cannot hold a conversation. Use an instruct "
                "model (for example smollm2-135m or qwen-0.5b)."
            )
        self.tokenizer = tokenizer
        self.tools = tools
        self._tools_in_template = bool(tools) and self._text([{"role": "user", "content": "q"}], True) != self._text(
            [{"role": "user", "content": "q"}], True, tools=None
        )
        self._prompts: dict[str, list[int]] = {}
        self._tool_edges = self._edges([{"role": "tool", "name": "x", "content": MARKER}])
        self._feedback_edges = self._edges([{"role": "user", "content": MARKER}])

    def _text(self, messages: list[Message], generate: bool, tools: Any = "ours") -> str:
        text: str = self.tokenizer.apply_chat_template(
            messages,
            tools=(self.tools or None) if tools == "ours" else tools,
            add_generation_prompt=generate,
            tokenize=False,
        )
        return text

    def _edges(self, turn: list[Message]) -> tuple[str, str]:
        """Text between the assistant's end token and the observation, and from there to the model's next token."""
        call = [{"type": "function", "function": {"name": "x", "arguments": {}}}]
        for assistant in (
            {"role": "assistant", "content": "", "tool_calls": call},
            {"role": "assistant", "content": "a"},
        ):
            base = [{"role": "user", "content": "q"}, assistant]
            for following in (turn, [{"role": "user", "content": MARKER}]):
                try:
                    before, full = self._text(base, False), self._text([*base, *following], True)
                except Exception:
                    continue
                end = str(self.tokenizer.eos_token)
                cut = before.rfind(end) + len(end) if end in before else len(before)
                if MARKER in full and full.startswith(before[:cut]):
                    head, tail = full[cut:].split(MARKER, 1)
                    return head, tail
        raise TemplateFault(
            f"the chat template of {self.tokenizer.name_or_path} rewrites earlier turns, so environment text cannot be "
            "appended to it. Use a model with an append-only template (tiny, smollm2-135m, qwen-0.5b)."
        )

    def prompt_ids(self, messages: list[Message]) -> list[int]:
        """Ids of the conversation up to the point where the model speaks."""
        text = self._text(self._with_tools(messages), True)
        if text not in self._prompts:
            self._prompts[text] = list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
        return self._prompts[text]

    def _with_tools(self, messages: list[Message]) -> list[Message]:
        """Puts the tools into the system message where the template ignores them."""
        if self._tools_in_template or not self.tools:
            return messages
        from trainer.rollout.toolless import describe_tools

        described = describe_tools(self.tools)
        if messages and messages[0]["role"] == "system":
            return [dict(messages[0], content=f"{messages[0]['content']}\n\n{described}"), *messages[1:]]
        return [{"role": "system", "content": described}, *messages]

    def observation_ids(self, texts: list[str]) -> list[int]:
        """Ids that answer a turn's calls, in call order, up to the model's next token."""
        head, tail = self._tool_edges
        if len(texts) == 1:
            return self._encode(head + texts[0] + tail)
        between = self._between()
        return self._encode(head + between.join(texts) + tail)

    def _between(self) -> str:
        two = [{"role": "tool", "name": "x", "content": MARKER}, {"role": "tool", "name": "x", "content": MARKER}]
        base: list[Message] = [
            {"role": "user", "content": "q"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "function": {"name": "x", "arguments": {}}}] * 2,
            },
        ]
        try:
            parts = self._text([*base, *two], True).split(MARKER)
        except Exception:
            return "\n"
        return parts[1] if len(parts) == 3 else "\n"

    def feedback_ids(self, text: str) -> list[int]:
        """Ids of a message to a model whose call could not be read."""
        head, tail = self._feedback_edges
        return self._encode(head + text + tail)

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
