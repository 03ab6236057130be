"""Every format reads back what is written in it, turns arguments into the types of the schema, and never raises."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.models.parsing import ParsedTurn, ToolCall, parse_hermes
from trainer.models.parsing.llama import parse_llama
from trainer.models.parsing.qwen_xml import parse_qwen_xml
from trainer.models.parsing.react import parse_react
from trainer.models.parsing.select import Parser, parse_hermes_or_react
from trainer.models.parsing.thinking import split_thinking
from trainer.models.parsing.types import Format, Reader
from trainer.models.parsing.values import MAX_DEPTH, read_json, typed


def tool(name: str, **types: str) -> dict[str, Any]:
    properties = {key: {"type": kind, "description": "d"} for key, kind in types.items()}
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}


TOOLS = [
    tool("search", query="string"),
    tool("add", a="integer", b="number"),
    tool("all_kinds", s="string", i="integer", n="number", b="boolean", o="object", l="array"),
    tool("nothing"),
]
READERS: dict[str, Reader] = {
    "hermes": parse_hermes,
    "qwen_xml": parse_qwen_xml,
    "llama": parse_llama,
    "react": parse_react,
    "hermes_or_react": parse_hermes_or_react,
}


# ---- writers, independent of the readers


def dumps(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def write_hermes(calls: list[ToolCall]) -> str:
    return "\n".join(f"<tool_call>\n{dumps({'name': c.name, 'arguments': c.arguments})}\n</tool_call>" for c in calls)


def write_xml(calls: list[ToolCall]) -> str:
    def value(v: object) -> str:
        return v if isinstance(v, str) else dumps(v)

    def one(call: ToolCall) -> str:
        inside = "".join(f"<parameter={k}>\n{value(v)}\n</parameter>\n" for k, v in call.arguments.items())
        return f"<tool_call>\n<function={call.name}>\n{inside}</function>\n</tool_call>"

    return "\n".join(map(one, calls))


def write_llama(calls: list[ToolCall]) -> str:
    return "; ".join(dumps({"name": c.name, "parameters": c.arguments}) for c in calls)


def write_react(calls: list[ToolCall]) -> str:
    return "\n".join(f"Action: {c.name}\nAction Input: {dumps(c.arguments)}" for c in calls)


WRITERS: dict[str, Callable[[list[ToolCall]], str]] = {
    "hermes": write_hermes,
    "qwen_xml": write_xml,
    "llama": write_llama,
    "react": write_react,
    "hermes_or_react": write_hermes,
}

RESERVED = re.compile(r"<|>|\n|\r|`|:")
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
plain = texts.filter(lambda t: not RESERVED.search(t))
kinds = {
    "s": plain,
    "i": st.integers(-(10**12), 10**12),
    "n": st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not x.is_integer()),
    "b": st.booleans(),
    "o": st.dictionaries(plain, st.integers() | plain, max_size=2),
    "l": st.lists(st.integers() | plain, max_size=3),
}
any_call = st.one_of(
    st.fixed_dictionaries({}, optional=kinds).map(lambda a: ToolCall("all_kinds", a)),
    st.builds(lambda q: ToolCall("search", {"query": q}), plain),
    st.just(ToolCall("nothing", {})),
)


@pytest.mark.parametrize("name", WRITERS)
@given(calls=st.lists(any_call, min_size=1, max_size=3))
def test_what_was_written_is_read(name: str, calls: list[ToolCall]) -> None:
    turn = READERS[name](WRITERS[name](calls), TOOLS)
    assert turn.errors == []
    assert turn.calls == calls
    for written, read in zip(calls, turn.calls, strict=True):  # 1 == 1.0 == True in Python
        assert {k: type(v) for k, v in written.arguments.items()} == {k: type(v) for k, v in read.arguments.items()}


TAGS = ("tool_call", "function", "parameter", "name", "arguments", "<think>", "</think>", "<|python_tag|>")
PIECES = ("Action:", "Action Input:", "Observation:", "f(", "null", "NaN", "\\ud800", "\x00", "é", "'")
ALPHABET = st.sampled_from([*'<>/={}[]()":,;\\ \n1e9.-', *TAGS, *PIECES])


@pytest.mark.parametrize("name", READERS)
@given(text=st.text(max_size=60) | st.lists(ALPHABET, max_size=40).map("".join))
def test_nothing_raises_and_everything_can_be_written_down(name: str, text: str) -> None:
    check_turn(Parser(Format.HERMES, READERS[name], native=True)(text, TOOLS))


def check_turn(turn: ParsedTurn) -> None:
    for call in turn.calls:
        assert call.name
        document = {"name": call.name, "arguments": call.arguments}
        json.dumps(document, ensure_ascii=False, allow_nan=False).encode("utf-8")
    assert turn.attempted == bool(turn.calls or turn.errors)


@pytest.mark.parametrize("name", WRITERS)
@given(data=st.data())
def test_mutated_calls_are_calls_or_errors_or_text(name: str, data: st.DataObject) -> None:
    text = WRITERS[name](data.draw(st.lists(any_call, min_size=1, max_size=2)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        kind = data.draw(st.sampled_from(["cut", "insert", "double", "swap"]))
        if kind == "cut":
            text = text[:at] + text[at + data.draw(st.integers(1, 5)) :]
        elif kind == "insert":
            text = text[:at] + data.draw(ALPHABET) + text[at:]
        elif kind == "double":
            text = text[:at] + text[max(0, at - 9) : at] + text[at:]
        else:
            text = text[at:] + text[:at]
    check_turn(READERS[name](text, TOOLS))


@pytest.mark.parametrize("name", READERS)
def test_hostile_depth_and_length(name: str) -> None:
    for text in ("[" * 50_000, "{" * 50_000, "(" * 50_000, "-" * 50_000 + "1", '{"a":' * 50_000):
        for whole in (
            f'<tool_call>{{"name": "f", "arguments": {text}',
            f"<tool_call>{text}</tool_call>",
            f"<tool_call><function=all_kinds><parameter=l>{text}</parameter></function></tool_call>",
            f'{{"name": "f", "parameters": {text}',
            f"Action: search({text})",
            f"Action: add(a={text[:3000]})",
            f"Action: add\nAction Input: {text}",
        ):
            READERS[name](whole, TOOLS)


# ---- values


def test_json_that_cannot_be_kept_is_refused() -> None:
    for text in (
        "NaN",
        "[Infinity]",
        "1e999",
        '"\\ud800"',
        '{"\\udfff": 1}',
        "[" * (MAX_DEPTH + 2) + "]" * 99,
        "{",
        "",
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - any reason
            read_json(text)
    assert read_json("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None
    assert parse_hermes('<tool_call>{"name": "f", "arguments": {"x": NaN}}</tool_call>').errors == [
        "the call is not valid JSON"
    ]


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("5", {"type": "string"}, "5"),
        (" 5 ", {"type": "integer"}, 5),
        ("5.0", {"type": "integer"}, 5),
        ("5", {"type": "number"}, 5),
        ("0.5", {"type": "number"}, 0.5),
        ("True", {"type": "boolean"}, True),
        ("false", {"type": "boolean"}, False),
        ('{"a": [1]}', {"type": "object"}, {"a": [1]}),
        ("[1, 2]", {"type": "array"}, [1, 2]),
        ("None", {"type": "integer", "nullable": True}, None),
        ("7", {"type": ["integer", "string"]}, 7),
        ("seven", {"type": ["integer", "string"]}, "seven"),
        ("x", {"anyOf": [{"type": "number"}, {"type": "string"}]}, "x"),
        ("5", {}, "5"),
        ("null", {"type": "string"}, "null"),
    ],
)
def test_text_becomes_what_the_schema_asks_for(text: str, schema: dict[str, Any], value: object) -> None:
    got = typed(text, schema)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "schema"),
    [("x", {"type": "integer"}), ("5.5", {"type": "integer"}), ("1", {"type": "boolean"}), ("[1]", {"type": "object"})],
)
def test_text_that_does_not_fit_is_named(text: str, schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"is not of type {schema['type']}"):
        typed(text, schema)


# ---- thinking


def test_calls_in_thoughts_are_not_calls() -> None:
    call = write_hermes([ToolCall("search", {"query": "x"})])
    parser = Parser(Format.HERMES, parse_hermes, native=True)
    turn = parser(f"<think>I could say {call}</think>\nNo need.")
    assert (turn.calls, turn.errors, turn.content) == ([], [], "No need.")
    assert call in turn.thinking
    assert parser(f"<think>hm</think>{call}").calls == [ToolCall("search", {"query": "x"})]
    assert parser(f"<think>never closed {call}").attempted is False
    assert parser(f"begun in the prompt {call}</think>said").attempted is False
    inside = Parser(Format.HERMES, parse_hermes, native=True, opened=True)
    assert inside(f"still thinking {call}").attempted is False
    assert inside(f"done</think>{call}").calls == [ToolCall("search", {"query": "x"})]
    assert inside(f"<think>again</think>{call}").calls == [ToolCall("search", {"query": "x"})]


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", "b "]), max_size=9).map("".join), st.booleans())
def test_no_tag_is_left_inside_what_was_thought(text: str, opened: bool) -> None:
    thinking, said = split_thinking(text, opened=opened)
    assert "</think>" not in thinking
    assert "<think>" not in said
    assert len(thinking) + len(said) <= len(text)


# ---- one format after the other


def test_hermes_also_reads_lists_and_encoded_arguments() -> None:
    text = '<tool_call>[{"name": "a", "arguments": {}}, {"name": "b", "arguments": "{\\"x\\": 1}"}]</tool_call>'
    assert parse_hermes(text).calls == [ToolCall("a", {}), ToolCall("b", {"x": 1})]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("<function=add>\n<parameter=a>\nx\n</parameter>\n</function>", "parameter a: 'x' is not of type integer"),
        ("<function=add>\n<parameter=a>\n1\n</function>", "parameter a was not closed with </parameter>"),
        ("<function=add>hello</function>", "only <parameter=name> may stand in a function"),
        ('{"name": "add"}', "a call is <function=name> … </function>"),
        ("<function=>\n</function>", "a call is <function=name> … </function>"),
    ],
)
def test_xml_says_what_is_wrong(body: str, error: str) -> None:
    assert parse_qwen_xml(f"<tool_call>\n{body}\n</tool_call>", TOOLS).errors == [error]


def test_xml_keeps_lines_of_a_value_and_names_a_call_without_its_tag() -> None:
    text = "<tool_call>\n<function=search>\n<parameter=query>\n\n a\nb \n\n</parameter>\n</function>\n</tool_call>"
    assert parse_qwen_xml(f"I look. {text}", TOOLS) == ParsedTurn(
        "I look.", [ToolCall("search", {"query": "\n a\nb \n"})]
    )
    assert parse_qwen_xml("<function=search></function>", TOOLS).errors == ["<function= outside of <tool_call>"]


def test_llama_tells_calls_from_answers() -> None:
    call = '{"name": "search", "parameters": {"query": "x"}}'
    expected = [ToolCall("search", {"query": "x"})]
    assert parse_llama(call).calls == expected
    assert parse_llama(f"<|python_tag|>{call}").calls == expected
    assert parse_llama(f"I look.<|python_tag|>{call}") == ParsedTurn("I look.", expected)
    assert parse_llama(f"{call}\n{call};{call}").calls == expected * 3
    assert parse_llama(f"[{call}, {call}]").calls == expected * 2
    assert parse_llama('{"answer": 5}') == ParsedTurn('{"answer": 5}')
    assert parse_llama(f"Say {call}").attempted is False
    assert parse_llama('{"name": "search", "parameters": {').errors == ["the call is not valid JSON"]
    assert parse_llama("<|python_tag|>print(1)").errors == ["no call follows <|python_tag|>"]
    assert parse_llama('<|python_tag|>{"x": 1}').errors == ["the call has no name"]
    assert parse_llama(f"{call} and more") == ParsedTurn("and more", expected)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("Action: search\nAction Input: rain in Oslo", [ToolCall("search", {"query": "rain in Oslo"})]),
        ('Thought: hm\nAction: search("rain")', [ToolCall("search", {"query": "rain"})]),
        ("Action: search(rain in Oslo)", [ToolCall("search", {"query": "rain in Oslo"})]),
        ("Action: search[rain, snow]", [ToolCall("search", {"query": "rain, snow"})]),
        ("Action: search(2 + 3)", [ToolCall("search", {"query": "2 + 3"})]),
        ("Action: search(query=2 + 3)", [ToolCall("search", {"query": "2 + 3"})]),
        ("Action: add(1, b=2.5)", [ToolCall("add", {"a": 1, "b": 2.5})]),
        ('Action: add({"a": 1, "b": 2})', [ToolCall("add", {"a": 1, "b": 2})]),
        ("Action: unknown(x=[1, {'a': None}])", [ToolCall("unknown", {"x": [1, {"a": None}]})]),
        ("Action: unknown(x=b'1')", [ToolCall("unknown", {"x": "b'1'"})]),
        ("Action: nothing", [ToolCall("nothing", {})]),
        ("Action: nothing()", [ToolCall("nothing", {})]),
        ('Action: add\nAction Input: ```json\n{"a": 1, "b": 2}\n```', [ToolCall("add", {"a": 1, "b": 2})]),
        ("Action: search(x)\nObservation: 5\nAction: search(y)", [ToolCall("search", {"query": "x"})]),
        ("Action: I will think about it", []),
        ("The plan of Action: search", []),
    ],
)
def test_react(text: str, calls: list[ToolCall]) -> None:
    turn = parse_react(text, TOOLS)
    assert turn.calls == calls
    assert turn.errors == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Action: add\nAction Input: 1", "add: write the arguments as a JSON object (a, b)"),
        ("Action: add\nAction Input: {1", "add: Action Input is not valid JSON"),
        ("Action: add(x", "add: the arguments were not closed with )"),
        ("Action: add(a=x)", "add: 'x' is not of type integer"),
        ("Action: nothing(x)", "nothing: write the arguments as a JSON object (names and values)"),
    ],
)
def test_react_says_what_is_wrong(text: str, error: str) -> None:
    assert parse_react(text, TOOLS).errors == [error]


def test_react_keeps_thoughts_and_the_final_answer_as_content() -> None:
    turn = parse_react("So.\nThought: easy\nFinal Answer: 5\n", TOOLS)
    assert turn == ParsedTurn("So.\neasy\n5")


def test_react_is_read_only_where_there_is_no_sign_of_hermes() -> None:
    assert parse_hermes_or_react("Action: search(x)", TOOLS).calls == [ToolCall("search", {"query": "x"})]
    mixed = "<tool_call>oops</tool_call>\nAction: search(x)"
    assert parse_hermes_or_react(mixed, TOOLS).errors == ["the call is not valid JSON"]
