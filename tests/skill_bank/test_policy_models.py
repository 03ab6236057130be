"""The pydantic models of a policy schema: what is declared, what follows from it, and what is said about mistakes."""

import subprocess
import sys
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError
from skill_bank_builder import SCHEMA

from skill_bank.blocks import parse_block
from skill_bank.policy_check import check_policy
from skill_bank.schema import Schema, parse_schema

ALL_KINDS = """schema_version: 1
keys:
  copy: {type: number, above: 0, max: 2}
  json: {type: integer, enum: [1, 2, 4]}
  on_off: {type: boolean}
  plan: {type: string, enum: [fast, slow], nullable: true}
  sizes: {type: list, of: {type: integer, min: 1}}
  table:
    type: names
    of: {type: mapping, fields: {low: {type: number}, deep: {type: mapping, fields: {x: {type: boolean}}}}}
"""


def declared(text: str) -> Schema:
    schema, wrong = parse_schema(text, "policy_schema.yaml")
    assert schema is not None
    assert wrong == ()
    return schema


def model_of(text: str) -> type[BaseModel]:
    return declared(text).declared.model


def told(text: str, schema: str = ALL_KINDS) -> list[tuple[int, str]]:
    found, wrong = parse_block(text, 1, skill="s", section="x", patch="p", file="f.md")
    assert wrong == ()
    return [(one.line, one.message) for one in check_policy(declared(schema), list(found))]


def test_a_declaration_becomes_a_class_of_pydantic_that_keeps_the_type_of_numbers() -> None:
    model = model_of(ALL_KINDS)
    assert issubclass(model, BaseModel)
    values: dict[str, Any] = {"copy": 1, "json": 2, "plan": None, "sizes": [3], "table": {"a": {"low": 1.0}}}
    found = model.model_validate(values).model_dump(by_alias=True, exclude_unset=True)
    assert found == values
    assert type(found["copy"]) is int
    assert type(model.model_validate({"copy": 1.0}).model_dump(by_alias=True)["copy"]) is float


@pytest.mark.parametrize(
    "values",
    [
        {"copy": True},
        {"copy": "1"},
        {"copy": 0},
        {"copy": 2.5},
        {"copy": float("nan")},
        {"json": 2.0},
        {"json": 3},
        {"json": False},
        {"on_off": 1},
        {"on_off": "true"},
        {"plan": "slower"},
        {"plan": 1},
        {"sizes": 3},
        {"sizes": (3,)},
        {"sizes": [3, 0]},
        {"table": 3},
        {"table": {"a": {"high": 1}}},
        {"table": {"a": {"deep": {"y": True}}}},
        {"colour": 1},
        {"key_copy": 1},
    ],
)
def test_what_the_class_refuses(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model_of(ALL_KINDS).model_validate(values)


def test_the_class_is_made_once_for_each_text_and_only_when_it_is_asked_for() -> None:
    first, second = parse_schema(SCHEMA, "a")[0], parse_schema(SCHEMA, "b")[0]
    assert first is not None
    assert second is not None
    assert (first.file, second.file) == ("a", "b")
    assert first.declared is second.declared
    assert first.declared.model is second.declared.model
    other = declared(ALL_KINDS.replace("max: 2", "max: 2.125")).declared
    assert "model" not in vars(other)
    assert check_policy(Schema("f", other), []) == []
    assert "model" not in vars(other), "nothing sets a value, so nothing needs the class"


def test_importing_a_policy_needs_no_pydantic() -> None:
    code = "import sys, skill_bank.policy; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0


def test_every_value_is_told_with_its_line_its_key_and_what_is_allowed() -> None:
    text = (
        "copy: 3\njson: 3\non_off: 1\nplan: [a]\nsizes: [1, 0, x]\ntable:\n  a: {low: x, high: 1}\n  b: 1\n"
        "colour: red\njson2: 1\n"
    )
    assert told(text) == [
        (1, "policy: copy is 3: it must be at most 2"),
        (2, "policy: json is 3: allowed are 1, 2, 4"),
        (3, "policy: on_off is 1: it must be a boolean"),
        (4, 'policy: plan is ["a"]: it must be a string'),
        (5, 'policy: sizes is [1, 0, "x"]: 0: it must be at least 1'),
        (5, "policy: sizes is [1, 0, \"x\"]: 'x': it must be an integer"),
        (7, 'policy: table.a.low is "x": it must be a number'),
        (7, "policy: 'table.a' has no 'high'. Known: deep, low"),
        (8, "policy: 'table.b' needs a mapping of deep, low"),
        (9, "policy: there is no policy key 'colour'. Known: copy, json, on_off, plan, sizes, table"),
        (10, "policy: there is no policy key 'json2'. Known: copy, json, on_off, plan, sizes, table"),
    ]
    assert told("json: {deep: 1}") == [(1, "policy: 'json' is an integer, it has no 'deep'")]
    assert told("copy: null") == [(1, "policy: copy is null: it may not be null")]
    assert told("plan: null\njson: 4\ncopy: 2") == []


def test_every_mistake_of_a_schema_is_told_with_its_line_and_what_is_allowed() -> None:
    text = (
        "schema_version: 2\nother: 1\nkeys:\n  a: {type: int}\n  b: {}\n  c: {type: integer, min: 1.5, size: 1}\n"
        "  d: {type: number, max: x}\n  e: 3\n  f: {type: mapping, fields: {x: {type: boolean}}, order: [y]}\n"
        "  g: {type: list, of: {type: names}}\n  h: {type: list}\n  Bad: {type: string}\n"
        "  i:\n    type: mapping\n    fields:\n      k: {type: string, enum: fast}\n"
        "  j: {type: string}\nrequired: [q]\n"
    )
    schema, wrong = parse_schema(text, "policy_schema.yaml")
    assert sorted(wrong) == [
        (1, "the schema must say `schema_version: 1`"),
        (2, "the schema has unknown other; known are keys, required, schema_version"),
        (4, "'a' has type 'int'; known are number, integer, boolean, string, list, mapping, names"),
        (5, "'b' has no type; known are number, integer, boolean, string, list, mapping, names"),
        (6, "'c' has unknown size; known are above, below, description, enum, max, min, nullable, type"),
        (6, "'c': `min` must be an integer"),
        (7, "'d': `max` must be a number"),
        (8, "'e' must be a mapping with a `type`"),
        (9, "'f': `order` names 'y'; it must be a list of the fields x"),
        (10, "'g': `of` has type 'names'; known are number, integer, boolean, string"),
        (11, "'h' needs `of`"),
        (12, "'Bad' must be lower-case letters, digits and _ after a letter"),
        (16, "'i.k': `enum` must be a list"),
        (18, "the schema: `required` names 'q'; it must be a list of the fields j"),
    ]
    assert schema is not None, "what is right by itself is used, to find what is wrong elsewhere"
    assert not schema.whole
    assert list(schema.declared.keys) == ["j"]
    found, _ = parse_block("j: 1\nzzz: 1", 1, skill="s", section="x", patch="p", file="f.md")
    assert [one.message for one in check_policy(schema, list(found))] == ["policy: j is 1: it must be a string"]


@pytest.mark.parametrize("text", ["", "- 1", "schema_version: 1", "schema_version: 1\nkeys: {}", "keys: [", "[1"])
def test_texts_that_declare_nothing(text: str) -> None:
    schema, wrong = parse_schema(text, "policy_schema.yaml")
    assert schema is None
    assert wrong
