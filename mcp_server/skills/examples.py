"""Examples in a skill: a few calls that an agent can read and a test can carry out.

An example is a fenced block `python example` whose first line is a comment, its title. It is a small part of Python,
read with `ast` and never given to the interpreter:

- `name = tool(argument=value)` calls a tool; a name keeps the answer, `name.field` and `name[0]` look into it, and a
  field that an answer leaves out is None;
- `name = refusal(tool(…))` is the text with which a call is refused, and fails where it is not;
- `name = mcp_evo("runs list")` is the JSON document of a command;
- `name = finished_run()` is the id of a run that is over;
- `while condition:` repeats calls, as often as `MAX_REPEATS`; `assert condition` says what must hold.

Values are literals, names and comparisons (`==`, `<`, `in`, `is`, `and`, `or`, `not`, `len(…)`).
"""

import ast
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from mcp_server.skills.markdown import SourceFile, blocks_of

EXAMPLE = "python example"
"""What stands behind the opening fence."""

MAX_REPEATS = 400
"""Rounds of one `while`: a run that is watched by waiting calls is over long before."""

HELPERS = frozenset({"refusal", "mcp_evo", "finished_run", "len"})

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


@dataclass(frozen=True)
class Example:
    """An example as written."""

    skill: str
    title: str
    file: str
    line: int
    """Line of the file where the code begins."""
    body: tuple[ast.stmt, ...]


class ExampleError(Exception):
    """An example that is not well formed, or that did not come out as it says; `line` is a line of its file."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


class Refused(Exception):
    """A tool or command answered with an error; the text is its message."""


class Actions(Protocol):
    """What an example may do."""

    async def tool(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Calls a tool. Raises Refused."""

    async def command(self, words: str) -> Any:
        """The JSON document of `mcp-evo …`. Raises Refused."""

    async def finished_run(self) -> str:
        """Id of a run that is over."""


def examples_of(skill: str, source: SourceFile) -> tuple[list[Example], list[ExampleError]]:
    """The examples of a file, and what is wrong with those that cannot be read."""
    found: list[Example] = []
    wrong: list[ExampleError] = []
    for block in blocks_of(source):
        if block.info != EXAMPLE:
            continue
        try:
            tree = ast.parse(block.text)
            title = block.text.split("\n", 1)[0]
            if not title.startswith("# "):
                raise ExampleError("an example begins with a comment, its title", block.line)
            for statement in tree.body:
                _check(statement, block.line - 1)
            found.append(Example(skill, title[2:].strip(), block.file, block.line, tuple(tree.body)))
        except SyntaxError as error:
            wrong.append(ExampleError(f"cannot be read: {error.msg}", block.line + (error.lineno or 1) - 1))
        except ExampleError as error:
            wrong.append(error)
    return found, wrong


def calls_in(body: Iterable[ast.stmt]) -> list[ast.Call]:
    """The calls of an example that are to succeed, helpers included."""
    refused = refused_in(body)
    return [node for node in _all_calls(body) if node not in refused]


def refused_in(body: Iterable[ast.stmt]) -> list[ast.Call]:
    """The calls that are to be refused: what stands inside of `refusal(…)`."""
    refusals = [node for node in _all_calls(body) if isinstance(node.func, ast.Name) and node.func.id == "refusal"]
    return [one for node in refusals for one in node.args if isinstance(one, ast.Call)]


def _all_calls(body: Iterable[ast.stmt]) -> list[ast.Call]:
    return [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call)]


async def run_example(example: Example, actions: Actions) -> None:
    """Carries an example out. Raises ExampleError at the line that failed."""
    await _Run(example, actions).block(example.body)


def _check(node: ast.stmt, above: int) -> None:
    """Raises ExampleError for anything that is not part of the small language."""
    allowed_statement = (ast.Assign, ast.Expr, ast.Assert, ast.While)
    if not isinstance(node, allowed_statement):
        raise ExampleError(f"{type(node).__name__} is not part of an example", above + node.lineno)
    if isinstance(node, ast.Assign) and not (len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
        raise ExampleError("assign to one name", above + node.lineno)
    if isinstance(node, ast.While):
        if node.orelse:
            raise ExampleError("a while has no else", above + node.lineno)
        _check_value(node.test, above)
        for one in node.body:
            _check(one, above)
        return
    value = node.test if isinstance(node, ast.Assert) else node.value
    _check_value(value, above)


def _check_value(value: ast.expr, above: int) -> None:
    parts = (
        *(ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.List, ast.Tuple, ast.Dict, ast.Call, ast.keyword),
        *(ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Load, ast.boolop, ast.unaryop, ast.cmpop),
    )
    for node in ast.walk(value):
        if not isinstance(node, parts):
            line = node.lineno if isinstance(node, ast.expr) else value.lineno
            raise ExampleError(f"{type(node).__name__} is not part of an example", above + line)
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name):
                raise ExampleError("call a tool by its name", above + node.lineno)
            if any(one.arg is None for one in node.keywords) or (node.args and node.func.id not in HELPERS):
                raise ExampleError("name each argument: tool(argument=value)", above + node.lineno)


class _Run:
    """One example on its way."""

    def __init__(self, example: Example, actions: Actions) -> None:
        self._above = example.line - 1
        self._actions = actions
        self._names: dict[str, Any] = {}

    async def block(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            line = self._above + statement.lineno
            try:
                await self._statement(statement)
            except Refused as error:
                raise ExampleError(f"{ast.unparse(statement)} was refused: {error}", line) from error
            except (KeyError, IndexError, TypeError) as error:
                raise ExampleError(f"{ast.unparse(statement)}: {error}", line) from error

    async def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            assert isinstance(target, ast.Name)
            self._names[target.id] = await self._value(node.value)
        elif isinstance(node, ast.Expr):
            await self._value(node.value)
        elif isinstance(node, ast.Assert):
            if not await self._value(node.test):
                raise ExampleError(f"does not hold: {ast.unparse(node.test)}{await self._seen(node.test)}",
                                   self._above + node.lineno)  # fmt: skip
        elif isinstance(node, ast.While):
            for _ in range(MAX_REPEATS):
                if not await self._value(node.test):
                    return
                await self.block(node.body)
            raise ExampleError(f"still holds after {MAX_REPEATS} rounds: {ast.unparse(node.test)}",
                               self._above + node.lineno)  # fmt: skip

    async def _seen(self, test: ast.expr) -> str:
        """What the names of a condition that failed were."""
        told = []
        for node in ast.walk(test):
            if isinstance(node, ast.Compare):
                told.append(f"{ast.unparse(node.left)} is {_short(await self._value(node.left))}")
        return f" ({'; '.join(told)})" if told else ""

    async def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            if node.id not in self._names:
                raise ExampleError(f"the name {node.id} has no value yet", self._above + node.lineno)
            return self._names[node.id]
        if isinstance(node, ast.Attribute):
            return _field(await self._value(node.value), node.attr)
        if isinstance(node, ast.Subscript):
            return (await self._value(node.value))[await self._value(node.slice)]
        if isinstance(node, (ast.List, ast.Tuple)):
            return [await self._value(one) for one in node.elts]
        if isinstance(node, ast.Dict):
            return {await self._value(key): await self._value(one)
                    for key, one in zip(node.keys, node.values, strict=True) if key is not None}  # fmt: skip
        if isinstance(node, ast.Call):
            return await self._call(node)
        return await self._condition(node)

    async def _condition(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Compare):
            left = await self._value(node.left)
            for operation, right_node in zip(node.ops, node.comparators, strict=True):
                right = await self._value(right_node)
                if not _COMPARE[type(operation)](left, right):
                    return False
                left = right
            return True
        if isinstance(node, ast.BoolOp):
            value: Any = None
            for one in node.values:
                value = await self._value(one)
                if bool(value) is isinstance(node.op, ast.Or):
                    break
            return value
        assert isinstance(node, ast.UnaryOp)
        value = await self._value(node.operand)
        return (not value) if isinstance(node.op, ast.Not) else -value

    async def _call(self, node: ast.Call) -> Any:
        assert isinstance(node.func, ast.Name)
        name = node.func.id
        if name == "refusal":
            return await self._refusal(node)
        given = [await self._value(one) for one in node.args]
        if name == "len":
            return len(given[0])
        if name == "mcp_evo":
            return await self._actions.command(str(given[0]))
        if name == "finished_run":
            return await self._actions.finished_run()
        return await self._actions.tool(name, {str(one.arg): await self._value(one.value) for one in node.keywords})

    async def _refusal(self, node: ast.Call) -> str:
        try:
            await self._value(node.args[0])
        except Refused as error:
            return str(error)
        raise ExampleError(f"{ast.unparse(node.args[0])} was not refused", self._above + node.lineno)


def _field(value: Any, name: str) -> Any:
    """A field of an answer; None where the answer leaves it out."""
    if value is None:
        raise TypeError(f"there is no .{name}: what should hold it is not in the answer")
    if not isinstance(value, dict):
        raise TypeError(f"{_short(value)} has no fields, asked for .{name}")
    return value.get(name)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}…"
