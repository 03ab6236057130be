"""What a skill's policy may hold, as its schema declares it (`Declaration`), and the pydantic model that follows from
it (`Declaration.model`), by which every value of a base or a patch is validated.

All models are strict: 1 and 1.0 stay what they are, `true` is no number, "3" is none either, and nothing is let
through that is not declared.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Le, Lt
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    Strict,
    StringConstraints,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError, core_schema

_STRICT = ConfigDict(extra="forbid", strict=True, frozen=True, ignored_types=(cached_property,))

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
"""A word of a policy key, as policy blocks write it."""
Number = Annotated[int, Strict()] | Annotated[float, Strict(), Field(allow_inf_nan=False)]
Names = Annotated[tuple[str, ...], Strict(False)]
"""A list of YAML."""


class _Kind(BaseModel):
    """What values a key may take."""

    model_config = _STRICT
    description: str = ""


class _Plain(_Kind):
    """A value, not a mapping of values."""

    nullable: bool = False


class NumberKind(_Plain):
    """An integer or a float."""

    type: Literal["number"]
    enum: Annotated[tuple[Number, ...], Strict(False)] = ()
    min: Number | None = None
    max: Number | None = None
    above: Number | None = None
    below: Number | None = None


class IntegerKind(_Plain):
    """An integer."""

    type: Literal["integer"]
    enum: Annotated[tuple[int, ...], Strict(False)] = ()
    min: int | None = None
    max: int | None = None
    above: int | None = None
    below: int | None = None


class BooleanKind(_Plain):
    """True or false."""

    type: Literal["boolean"]


class StringKind(_Plain):
    """A text."""

    type: Literal["string"]
    enum: Names = ()


Scalar = Annotated[NumberKind | IntegerKind | BooleanKind | StringKind, Field(discriminator="type")]


class ListKind(_Plain):
    """A list of plain values."""

    type: Literal["list"]
    of: Scalar


class MappingKind(_Kind):
    """Declared names, each of its own kind."""

    type: Literal["mapping"]
    fields: Annotated[dict[Name, "Kind"], Field(min_length=1)]
    required: Names = ()
    """Fields that have a value in every context in which the mapping has one."""
    order: Names = ()
    """Fields that, where they are set, never decrease."""

    @model_validator(mode="after")
    def _names_its_fields(self) -> Self:
        _known("required", self.required, self.fields)
        _known("order", self.order, self.fields)
        return self


class NamesKind(_Kind):
    """Free names, all of one kind."""

    type: Literal["names"]
    of: "Kind"


Kind = Annotated[
    NumberKind | IntegerKind | BooleanKind | StringKind | ListKind | MappingKind | NamesKind,
    Field(discriminator="type"),
]
KINDS: dict[str, type[_Kind]] = {
    "number": NumberKind,
    "integer": IntegerKind,
    "boolean": BooleanKind,
    "string": StringKind,
    "list": ListKind,
    "mapping": MappingKind,
    "names": NamesKind,
}
"""By what `type` says."""


class Declaration(BaseModel):
    """A whole `policy_schema.yaml`."""

    model_config = _STRICT
    schema_version: Literal[1]
    keys: Annotated[dict[Name, Kind], Field(min_length=1)]
    required: Names = ()
    """Keys that have a value in every context."""

    @model_validator(mode="after")
    def _requires_its_keys(self) -> Self:
        _known("required", self.required, self.keys)
        return self

    @cached_property
    def model(self) -> type[BaseModel]:
        """The class of a policy, or of a part of one: any of the declared keys may be absent.

        It is made when it is first asked for, which takes about a millisecond.
        """
        return _model(self.keys)


def _known(what: str, names: tuple[str, ...], fields: dict[str, Any]) -> None:
    for one in names:
        if one not in fields:
            known = ", ".join(fields)
            raise PydanticCustomError(
                "unknown_field", "names '{name}'; it must be a list of the fields {known}",
                {"what": what, "name": one, "known": known},
            )  # fmt: skip


def _model(fields: dict[str, Any]) -> type[BaseModel]:
    # Attributes have names of their own: a policy key may be called like a method of pydantic (`copy`, `json`).
    made: dict[str, Any] = {
        f"key_{key}": (_type_of(kind), Field(default=None, alias=key)) for key, kind in fields.items()
    }
    return create_model("Policy", __config__=_STRICT, **made)


@dataclass(frozen=True)
class _Fields:
    """A mapping of declared names, any of which may be absent. (A class for each would take ten times as long.)"""

    kinds: dict[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        fields = {
            name: core_schema.typed_dict_field(handler.generate_schema(_type_of(kind)), required=False)
            for name, kind in self.kinds.items()
        }
        return core_schema.typed_dict_schema(fields, strict=True, extra_behavior="forbid")


def _type_of(kind: Any) -> Any:
    """The type by which pydantic takes a value of a kind."""
    found: Any
    match kind:
        case MappingKind():
            return Annotated[dict[str, Any], _Fields(kind.fields)]
        case NamesKind():
            return dict[str, _type_of(kind.of)]  # type: ignore[misc]
        case ListKind():
            found = list[_type_of(kind.of)]  # type: ignore[misc]
        case NumberKind() | IntegerKind():
            bounds = ((Ge, kind.min), (Le, kind.max), (Gt, kind.above), (Lt, kind.below))
            found = int if isinstance(kind, IntegerKind) else int | float
            for bound, value in bounds:
                found = found if value is None else Annotated[found, bound(value)]
        case BooleanKind():
            found = bool
        case _:
            found = str
    if isinstance(kind, NumberKind | IntegerKind | StringKind) and kind.enum:
        found = Annotated[found, AfterValidator(_among(kind.enum))]
    return found | None if kind.nullable else found


def _among(allowed: tuple[Any, ...]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if value not in allowed:
            shown = ", ".join(str(one) for one in allowed)
            raise PydanticCustomError("not_allowed", "allowed are {allowed}", {"allowed": shown})
        return value

    return check
