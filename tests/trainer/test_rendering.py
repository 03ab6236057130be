"""The wire text of conversations: equal to the published format, and appended exactly as a whole rendering would."""

from pathlib import Path

import pytest
import trl

from trainer.envs import registry
from trainer.envs.base import EnvironmentFault, EnvironmentSpec
from trainer.experience.block import with_experience
from trainer.models.load import LoadedModel
from trainer.rollout.rendering import Renderer, TemplateFault, tool_schemas


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


CONVERSATION: list[dict[str, object]] = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "第一 question"},
    {"role": "assistant", "content": "", "tool_calls": [call("f", x="1 + 2é"), call("f", x="2")]},
    {"role": "tool", "name": "f", "content": "3"},
    {"role": "tool", "name": "f", "content": "4"},
    {"role": "assistant", "content": "think", "tool_calls": [call("f", x="1")]},
    {"role": "tool", "name": "f", "content": "5"},
    {"role": "assistant", "content": "Done."},
    {"role": "user", "content": "more"},
]


@pytest.mark.parametrize("with_tools", [True, False])
@pytest.mark.parametrize("generate", [True, False])
def test_our_template_writes_what_qwen_2_5_reads(tiny: LoadedModel, with_tools: bool, generate: bool) -> None:
    published = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja").read_text()
    tools = tool_schemas(registry.load("lookup")) if with_tools else None

    def render(template: str | None) -> str:
        text: str = tiny.tokenizer.apply_chat_template(
            CONVERSATION, tools=tools, add_generation_prompt=generate, tokenize=False, chat_template=template
        )
        return text

    assert render(None) == render(published)


def test_appended_ids_are_those_of_the_whole_conversation(tiny: LoadedModel) -> None:
    tools = tool_schemas(registry.load("calculator"))
    renderer = Renderer(tiny.tokenizer, tools)
    turns: list[dict[str, object]] = [
        {"role": "assistant", "content": "", "tool_calls": [call("calculate", expression="1 + 2")]},
        {"role": "tool", "name": "calculate", "content": "3"},
    ]
    start: list[dict[str, object]] = [{"role": "user", "content": "What is 1 + 2?"}]
    said = '<tool_call>\n{"name": "calculate", "arguments": {"expression": "1 + 2"}}\n</tool_call><|im_end|>'
    appended = (
        renderer.prompt_ids(start)
        + tiny.tokenizer(said, add_special_tokens=False)["input_ids"]
        + renderer.observation_ids(["3"])
    )
    assert appended == renderer.prompt_ids([*start, *turns])


def test_two_answers_stand_in_one_turn_in_order(tiny: LoadedModel) -> None:
    renderer = Renderer(tiny.tokenizer, tool_schemas(registry.load("calculator")))
    text = tiny.tokenizer.decode(renderer.observation_ids(["1", "2"]))
    assert text == (
        "\n<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_template_without_tools_gets_them_in_the_system_message(tiny: LoadedModel, monkeypatch) -> None:
    plain = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    monkeypatch.setattr(tiny.tokenizer, "chat_template", plain)
    renderer = Renderer(tiny.tokenizer, tool_schemas(registry.load("calculator")))
    text = tiny.tokenizer.decode(renderer.prompt_ids([{"role": "user", "content": "q"}]))
    assert '"name": "calculate"' in text
    assert "<tool_call>" in text
    assert text.index("calculate") < text.index("q<|im_end|>")


def test_models_that_cannot_hold_a_conversation_are_named(tiny: LoadedModel, monkeypatch) -> None:
    monkeypatch.setattr(tiny.tokenizer, "chat_template", None)
    with pytest.raises(TemplateFault, match=r"has no chat template.*built-in"):
        Renderer(tiny.tokenizer, [])


class Undescribed:
    def reset(self, **row: object) -> None: ...

    def get_reward(self) -> float:
        return 0.0

    def look(self, where: str) -> str:
        """Looks somewhere."""
        return where


def test_a_tool_that_cannot_be_described_is_named() -> None:
    with pytest.raises(EnvironmentFault, match=r"tool `look` cannot be described.*Args"):
        tool_schemas(EnvironmentSpec.of("x", Undescribed))


def test_an_experience_joins_the_last_users_message_and_leaves_the_input_alone() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    changed = with_experience(messages, "do c")
    assert changed[0]["content"] == (
        "a\n\nSome Related Experience to help you to complete the task:<EXP>do c</EXP>\n\n"
    )
    assert messages[0]["content"] == "a"
    with pytest.raises(ValueError, match="no user message"):
        with_experience([{"role": "assistant", "content": "b"}], "x")
