"""What pydantic found wrong with a configuration, in words: what was wrong, where it came from, what is allowed."""

import difflib
from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trainer.config import TrainingConfig
from trainer.experience.manager import ALIASES, ExperienceConfig

_SOURCES = {
    "request": "from the request",
    "set": "from --set",
    "override": "from the overrides",
    "config": "from the config file",
    "policy": "from policy",
    "default": "a default",
}


def unknown_field(name: str, where: str) -> str:
    """The sentence for a key that `TrainingConfig` does not have."""
    near = difflib.get_close_matches(name, TrainingConfig.model_fields, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"{where}: unknown key {name!r}.{hint} Allowed: {', '.join(TrainingConfig.model_fields)}."


def allowed_values(name: str) -> str:
    """What a field takes: its choices, or its type with its bounds."""
    info = TrainingConfig.model_fields[name]
    choices = _choices(info.annotation)
    if choices:
        return " | ".join(str(choice) for choice in choices)
    bounds = []
    for one in info.metadata:
        if isinstance(one, annotated_types.Ge):
            bounds.append(f"at least {one.ge:,}" if isinstance(one.ge, int) else f"at least {one.ge}")
        elif isinstance(one, annotated_types.Gt):
            bounds.append(f"greater than {one.gt}")
        elif isinstance(one, annotated_types.Le):
            bounds.append(f"at most {one.le:,}" if isinstance(one.le, int) else f"at most {one.le}")
        elif isinstance(one, annotated_types.Lt):
            bounds.append(f"less than {one.lt}")
    return " ".join([_kind(info.annotation), " and ".join(bounds)]).strip()


def _choices(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) is tuple:
        return _choices(get_args(annotation)[0])
    return ()


def _kind(annotation: Any) -> str:
    arguments = get_args(annotation)
    kinds = [one for one in (arguments or (annotation,)) if one is not type(None)]
    optional = " or null" if type(None) in arguments else ""
    if get_origin(annotation) is dict:
        return "a mapping"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(kinds[0], "a value") + optional


def explain_validation_error(error: ValidationError, provenance: dict[str, dict[str, Any]]) -> str:
    """All problems of one configuration as one message, a line each."""
    return "\n".join(_explain(one, provenance) for one in error.errors(include_url=False))


def explain_field_errors(error: ValidationError, name: str, words: str) -> str:
    """What is wrong with one field that the `words` of a request ask for; empty: nothing is, by itself."""
    provenance = {name: {"source": "request", "detail": words}}
    own = [one for one in error.errors(include_url=False) if one["loc"] and one["loc"][0] == name]
    return "\n".join(_explain(one, provenance) for one in own)


def _explain(one: ErrorDetails, provenance: dict[str, dict[str, Any]]) -> str:
    if not one["loc"]:
        return one["msg"].removeprefix("Value error, ")
    name = str(one["loc"][0])
    if name == "experience":
        return _explain_experience(one)
    if one["type"] == "extra_forbidden":
        return unknown_field(name, "configuration")
    origin = provenance.get(name, {})
    where = _SOURCES.get(str(origin.get("source")), "")
    detail = origin.get("detail")
    said = f' ({where}: "{detail}")' if detail and where else ""
    hint = _hint(name, one["input"])
    return f"{name} {one['input']!r} is not allowed{said}. Allowed: {allowed_values(name)}.{hint}"


def _explain_experience(one: ErrorDetails) -> str:
    """Its keys have meanings together; the model itself says what is wrong with them."""
    inner = ".".join(str(part) for part in one["loc"] if part != "ExperienceConfig")
    if one["type"] == "extra_forbidden":
        key, known = str(one["loc"][-1]), [*ExperienceConfig.model_fields, *ALIASES]
        near = difflib.get_close_matches(key, known, n=2)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        return f"{inner}: unknown key {key!r}.{hint} Allowed: {', '.join(known)}."
    if len(one["loc"]) == 1 and one["type"] == "value_error":
        return f"experience: {one['msg'].removeprefix('Value error, ')}"
    return f"{inner} {one['input']!r} is not allowed: {one['msg']}."


def _hint(name: str, value: Any) -> str:
    """What was probably meant."""
    if name == "target_reward" and isinstance(value, (int, float)) and 2 <= value <= 100:
        return f" If you mean {value:g} per cent, write {value / 100:g} or {value:g}%."
    choices = _choices(TrainingConfig.model_fields[name].annotation)
    near = difflib.get_close_matches(str(value), [str(choice) for choice in choices], n=1)
    return f" Did you mean {near[0]}?" if near else ""
