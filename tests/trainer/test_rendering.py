"""The wire text of conversations: equal to the published format, and appended exactly as a whole rendering would."""

import json
from pathlib import Path
from typing import Any

import pytest
import trl
from template_zoo import FAMILIES

from trainer.envs import registry
from trainer.envs.base import EnvironmentFault, EnvironmentSpec
from trainer.experience.block import with_experience
from trainer.models import templates
from trainer.models.load import LoadedModel
from trainer.models.parsing import Format, ToolCall
from trainer.models.templates import fallback_template, render, turn_end
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


# ---- families of templates

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Looks up.",
            "parameters": {
                "type": "object",
                "properties": {
                    "person": {"type": "string", "description": "Who."},
                    "year": {"type": "integer", "description": "When."},
                },
                "required": ["person"],
            },
        },
    }
]
CALL = ToolCall("look_up", {"person": "Ada", "year": 1843})
HERMES_CALL = '<tool_call>\n{"name": "look_up", "arguments": {"person": "Ada", "year": 1843}}\n</tool_call>'
ASKED = [{"role": "system", "content": "SYSTEM"}, {"role": "user", "content": "QUESTION"}]


def renderer_of(family: str) -> Renderer:
    tokenizer = FAMILIES[family].tokenizer()
    if tokenizer.chat_template is None:
        tokenizer.chat_template = fallback_template(tokenizer)
    return Renderer(tokenizer, TOOLS)


def decoded(renderer: Renderer, ids: list[int]) -> str:
    return str(renderer.tokenizer.decode(ids))


@pytest.mark.parametrize(
    ("family", "form", "native", "call"),
    [
        ("qwen3", Format.HERMES, True, HERMES_CALL),
        ("qwen3_base", Format.HERMES, True, HERMES_CALL),
        (
            "qwen35",
            Format.QWEN_XML,
            True,
            "</think>\n\n<tool_call>\n<function=look_up>\n<parameter=person>\nAda\n</parameter>\n<parameter=year>\n1843\n"
            "</parameter>\n</function>\n</tool_call>",
        ),
        ("llama3", Format.LLAMA_JSON, True, '{"name": "look_up", "parameters": {"person": "Ada", "year": 1843}}'),
        ("smollm2", Format.HERMES, False, HERMES_CALL),
        ("mistral", Format.HERMES, False, HERMES_CALL),
        ("gemma", Format.HERMES, False, HERMES_CALL),
        ("plain_text", Format.HERMES, False, HERMES_CALL),
        ("base", Format.HERMES, False, 'Action: look_up(person="Ada", year=1843)'),
    ],
)
def test_the_parser_is_the_one_that_reads_the_template(family: str, form: Format, native: bool, call: str) -> None:
    renderer = renderer_of(family)
    assert (renderer.parser.format, renderer.parser.native) == (form, native)
    assert renderer.parse(call).calls == [CALL]
    assert renderer.parse("QUESTION").attempted is False


@pytest.mark.parametrize("family", FAMILIES)
def test_the_prompt_holds_system_message_tools_and_question_once(family: str) -> None:
    renderer = renderer_of(family)
    text = decoded(renderer, renderer.prompt_ids(ASKED))
    described = 1 if renderer.parser.native else 2  # a described format is shown with one of the tools
    assert [text.count(part) for part in ("SYSTEM", '"look_up"', "QUESTION")] == [1, described, 1]
    assert text.index("SYSTEM") < text.index("QUESTION")
    without = decoded(renderer, renderer.prompt_ids(ASKED[1:]))
    assert [without.count(part) for part in ("SYSTEM", '"look_up"', "QUESTION")] == [0, described, 1]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("results", [["7"], ["7", "x y"], ['a "b"\n\\ <é> \n'], [""], ["", "2", "three"]])
def test_results_reach_the_model_in_order_and_end_where_it_speaks(family: str, results: list[str]) -> None:
    renderer = renderer_of(family)
    text = decoded(renderer, renderer.observation_ids(results))
    prompt = decoded(renderer, renderer.prompt_ids(ASKED))
    assert text[-4:] == prompt[-4:]  # both end where the model speaks
    assert "qzMARKzq" not in text
    at = 0
    for result in results:
        shown = json.dumps(result, ensure_ascii=False) if family == "llama3" else result.strip()
        assert shown in text[at:]
        at = text.index(shown, at) + len(shown)


@pytest.mark.parametrize("family", ["qwen35", "smollm2", "gemma", "plain_text", "base", "llama3"])
def test_appending_equals_a_whole_rendering_where_the_template_keeps_the_history(family: str) -> None:
    renderer = renderer_of(family)
    following: list[dict[str, Any]] = [{"role": "tool", "name": "look_up", "tool_call_id": "call00000", "content": "7"}]
    said: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call("look_up", **CALL.arguments)]}
    if not renderer.parser.native:
        following = [{"role": "user", "content": "<tool_response>\n7\n</tool_response>"}]
        said = {"role": "assistant", "content": HERMES_CALL}
    asked = renderer._adapted(ASKED)
    tools = TOOLS if renderer.parser.native else None
    whole = render(renderer.tokenizer, [*asked, said, *following], tools, generate=True)
    turn = render(renderer.tokenizer, [*asked, said], tools, generate=False)
    end = turn_end(renderer.tokenizer)
    mark = "" if end is None else str(renderer.tokenizer.decode([end]))
    turn = turn[: turn.rindex(mark) + len(mark)] if mark else turn.rstrip("\n")
    assert turn + decoded(renderer, renderer.observation_ids(["7"])) == whole
    assert renderer.prefix_preserving


def test_a_template_that_drops_earlier_thoughts_is_seen_and_appended_to_all_the_same() -> None:
    renderer = renderer_of("qwen3")
    assert not renderer.prefix_preserving
    assert decoded(renderer, renderer.observation_ids(["7"])) == (
        "\n<|im_start|>user\n<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_every_end_token_is_known() -> None:
    def texts(family: str) -> set[str]:
        renderer = renderer_of(family)
        return {str(renderer.tokenizer.decode([i])) for i in renderer.end_ids}

    assert texts("qwen3") == {"<|im_end|>"}
    assert texts("qwen3_base") == {"<|im_end|>", "<|endoftext|>"}  # the template ends otherwise than the tokenizer says
    assert texts("gemma") == {"<end_of_turn>", "<eos>"}
    assert texts("plain_text") == {"</s>"}


def test_a_turn_that_a_stop_text_ended_is_closed_before_the_result() -> None:
    renderer = renderer_of("gemma")
    closed = renderer.observation_ids(["7"])
    opened = renderer.observation_ids(["7"], closed=False)
    assert decoded(renderer, opened[:1]) == "<end_of_turn>"
    assert opened[1:] == closed
    assert renderer.stops == ("\nObservation:",)
    assert renderer_of("qwen3").stops == ()
    assert renderer_of("base").stops == ("\nObservation:", "\nUser:", "\nSystem:")


def test_a_base_model_gets_the_built_in_template() -> None:
    renderer = renderer_of("base")
    plain = Renderer(renderer.tokenizer, [])
    assert plain.prompt_text(ASKED) == "System: SYSTEM\n\nUser: QUESTION\n\nAssistant:"
    assert decoded(renderer, renderer.observation_ids(["7"])) == (
        "\n\nUser: <tool_response>\n7\n</tool_response>\n\nAssistant:"
    )


def test_a_tokenizer_without_any_end_cannot_be_used() -> None:
    tokenizer = FAMILIES["base"].tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(TemplateFault, match="neither a chat template nor an end token"):
        fallback_template(tokenizer)


def test_the_prompt_does_not_change_from_day_to_day() -> None:
    renderer = renderer_of("llama3")
    assert "Today Date: 26 Jul 2024" in renderer.prompt_text(ASKED)


def test_a_conversation_that_the_template_refuses_is_named() -> None:
    renderer = renderer_of("gemma")
    with pytest.raises(TemplateFault, match=r"cannot render the roles assistant, user: Roles must alternate"):
        templates.render(
            renderer.tokenizer,
            [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}],
            generate=True,
        )


def test_neighbours_of_one_role_are_joined_where_the_template_insists() -> None:
    conversation = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    gemma, smollm = renderer_of("gemma").prompt_text(conversation), renderer_of("smollm2").prompt_text(conversation)
    assert gemma.endswith("a\n\nb<end_of_turn>\n<start_of_turn>model\n")
    assert smollm.endswith("a<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("name", "form", "native"),
    [
        ("qwen2_5", Format.HERMES, True),
        ("qwen3", Format.HERMES, True),
        ("qwen3_5_think", Format.QWEN_XML, True),
        ("llama3_1", Format.LLAMA_JSON, True),
        ("llama3_2", Format.LLAMA_JSON, True),
        ("gemma", Format.HERMES, False),
        ("deepseekv3", Format.HERMES, False),
        ("phi3", Format.HERMES, False),
    ],
)
def test_published_templates_are_recognised(name: str, form: Format, native: bool) -> None:
    tokenizer = FAMILIES["llama3"].tokenizer()
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / f"{name}.jinja").read_text()
    renderer = Renderer(tokenizer, TOOLS)
    assert (renderer.parser.format, renderer.parser.native) == (form, native)
    assert "7" in decoded(renderer, renderer.observation_ids(["7"]))
