"""Whether everything that a skill names exists: tools and their arguments, resources, commands, policy keys, skills.

A skill outlives the server it was written for. The lint asks the live server and command line (`skill_words`) for every
name in the sources of a bank, and says file, line and what to write instead. It reads forms: calls `tool(argument=…)`,
words in backticks, `evo://…`, `mcp-evo …` and `{{policy.key}}`. Prose outside of these it does not understand.
"""

import ast
import difflib
import re
import shlex
from collections.abc import Iterable, Iterator

from mcp_server.skills.examples import EXAMPLE, HELPERS, calls_in, examples_of, refused_in
from mcp_server.skills.markdown import Block, SourceFile, blocks_of, sources_of
from mcp_server.skills.words import CommandWords, Words
from skill_bank.bank import SkillBank
from skill_bank.types import BankError, Problem
from trainer.request import RequestError, parse_request

_CODE = re.compile(r"`([^`\n]+)`")
_CALL = re.compile(r"(?<![\w.])([a-z][a-z0-9]*(?:_[a-z0-9]+)+|evolve)\(")
_NAME = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?:\.[a-z_0-9]+)*")
_FIELD = re.compile(r"([a-z][a-z0-9_]*)\s*=\s*\S.*")
_RESOURCE = re.compile(r"evo://[^\s`)>\],;]+")
_COMMAND = re.compile(r"(?<![\w./-])mcp-evo(?: +[^\n]*)?")
_POLICY = re.compile(r"\{\{\s*policy\.([^}\s]+)\s*\}\}")
_SKILL = re.compile(r"\b(?:rllm|traj|meta)-[a-z]+(?:-[a-z]+)*\b")
_FILE_ENDINGS = ("py", "jsonl", "json", "md", "yaml", "csv", "parquet", "gguf", "log")
_PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_|-]*\Z|[<\[].*|…|\.\.\.")


def lint_bank(bank: SkillBank, target: str = "all", words: Words | None = None) -> list[Problem]:
    """Everything that the skills of a target name and that does not exist, in order of file and line.

    What keeps a bank from compiling comes with it. Raises BankError for a target that is not there.
    """
    found = list(bank.check(target))
    known = words if words is not None else Words.of(bank)
    for skill in chosen_skills(bank, target):
        try:
            sources = sources_of(bank, skill)
        except BankError as error:
            found += error.problems
            continue
        for source in sources:
            found += lint_source(skill, source, known)
    return sorted(set(found))


def chosen_skills(bank: SkillBank, target: str) -> tuple[str, ...]:
    """The skills of a target: all, a group, or one. Raises BankError."""
    if target == "all":
        return bank.skills()
    if target in bank.groups():
        return bank.skills(target)
    bank.group_of(target)
    return (target,)


def lint_source(skill: str, source: SourceFile, words: Words) -> list[Problem]:
    """What is wrong with the names in one file of a skill."""
    found: list[Problem] = []
    examples, unreadable = examples_of(skill, source)
    found += [Problem(source.file, one.line, f"an example {one}", "Write calls, while and assert only")
              for one in unreadable]  # fmt: skip
    for example in examples:
        for call in calls_in(example.body):
            found += _check_call(source.file, example.line + call.lineno - 1, call, words)
        for call in refused_in(example.body):  # wrong on purpose; its tool has to exist
            found += _check_tool(source.file, example.line + call.lineno - 1, call, words)
    for block in blocks_of(source):
        info = (block.info or "").split()
        if info[1:] == ["policy"] or block.info == EXAMPLE:
            continue
        found += _check_block(skill, block, words)
    return sorted(set(found))


def _check_block(skill: str, block: Block, words: Words) -> Iterator[Problem]:
    for offset, line in enumerate(block.text.split("\n")):
        number = block.line + offset
        yield from _check_calls(block.file, number, line, words)
        for match in _RESOURCE.finditer(line):
            yield from _check_resource(block.file, number, match[0].rstrip(".:"), words)
        for match in _POLICY.finditer(line):
            yield from _check_policy(skill, block.file, number, match[1], words)
        for match in _SKILL.finditer(line):
            if match[0] not in words.skills:
                yield _unknown(block.file, number, "skill", match[0], words.skills)
        codes = [line] if block.info is not None else [code[1] for code in _CODE.finditer(line)]
        for code in codes:
            yield from _check_code(block, number, code, words)


def _check_code(block: Block, number: int, code: str, words: Words) -> Iterator[Problem]:
    command = _COMMAND.search(code)
    if command is not None:
        yield from _check_command(block.file, number, command[0], words.command)
        return
    if block.info is not None:
        return
    if _NAME.fullmatch(code) and code.rsplit(".", 1)[-1] not in _FILE_ENDINGS:
        missing = [part for part in code.split(".") if part not in words.names]
        if missing:
            yield _unknown(block.file, number, "tool, argument, field or policy key", missing[0], words.names)
    field = _FIELD.fullmatch(code)
    if field is not None and field[1] not in words.names:
        yield _unknown(block.file, number, "argument", field[1], words.names)


def _check_policy(skill: str, file: str, line: int, key: str, words: Words) -> Iterator[Problem]:
    if key not in words.policy.get(skill, frozenset()):
        yield _unknown(file, line, f"policy key of {skill}", key, words.policy.get(skill, ()))


def _check_resource(file: str, line: int, given: str, words: Words) -> Iterator[Problem]:
    for known in words.resources:
        shape = "".join(
            r"[^/\s]+" if part.startswith("{") else re.escape(part) for part in re.split(r"(\{.*?\})", known)
        )
        if re.fullmatch(shape, given):
            return
    kinds = {known: known.split("/")[2] for known in words.resources}
    near = difflib.get_close_matches(given.split("/")[2], set(kinds.values()), n=1)
    alike = [known for known, kind in kinds.items() if kind in near]
    yield _unknown(file, line, "resource", given, alike or words.resources)


def _check_calls(file: str, number: int, line: str, words: Words) -> Iterator[Problem]:
    for match in _CALL.finditer(line):
        text = balanced_call(line, match.start(), match.end())
        if match[1] not in words.tools:
            yield _unknown(file, number, "tool", match[1], words.tools)
            continue
        if text is None:
            yield Problem(file, number, f"the call of {match[1]} is not closed on its line", "Close the bracket")
            continue
        plain = re.sub(r"\{\{.*?\}\}", "...", text).replace("…", "...")
        try:
            call = ast.parse(plain, mode="eval").body
        except SyntaxError:
            yield Problem(file, number, f"{text} cannot be read as a call", "Write tool(argument=value), … for a value")
            continue
        assert isinstance(call, ast.Call)
        yield from _check_call(file, number, call, words)


def balanced_call(line: str, start: int, opened: int) -> str | None:
    """The call from its name to the bracket that closes it; None where none does."""
    depth, quote = 1, ""
    for position in range(opened, len(line)):
        sign = line[position]
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign == "(":
            depth += 1
        elif sign == ")":
            depth -= 1
            if depth == 0:
                return line[start : position + 1]
    return None


def _check_call(file: str, line: int, call: ast.Call, words: Words) -> Iterator[Problem]:
    assert isinstance(call.func, ast.Name)
    name = call.func.id
    if name in HELPERS:
        if name == "mcp_evo" and call.args and isinstance(call.args[0], ast.Constant):
            yield from _check_command(file, line, f"mcp-evo {call.args[0].value!s}", words.command)
        return
    yield from _check_tool(file, line, call, words)
    tool = words.tools.get(name)
    if tool is None:
        return
    open_ended = any(isinstance(one, ast.Constant) and one.value is ... for one in call.args)
    if call.args and not open_ended:
        takes = ", ".join(tool.arguments)
        yield Problem(
            file, line, f"{name} is called without naming its arguments", f"Write argument=value; it takes {takes}"
        )
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        if keyword.arg not in tool.arguments:
            yield _unknown(file, line, f"argument of {name}", keyword.arg, tool.arguments)
            continue
        yield from _check_argument(file, line, name, keyword.arg, keyword.value, words)
    missing = [one for one in tool.required if one not in {each.arg for each in call.keywords}]
    if missing and not open_ended and not call.args:
        yield Problem(file, line, f"{name} is called without {missing[0]}", f"Write {name}({missing[0]}=…)")


def _check_tool(file: str, line: int, call: ast.Call, words: Words) -> Iterator[Problem]:
    assert isinstance(call.func, ast.Name)
    if call.func.id not in words.tools and call.func.id not in HELPERS:
        yield _unknown(file, line, "tool", call.func.id, words.tools)


def _check_argument(file: str, line: int, tool: str, name: str, node: ast.expr, words: Words) -> Iterator[Problem]:
    """The value of an argument, where it is written out."""
    inner = node.elts if isinstance(node, ast.List) else [node]
    for one in inner:
        for key in one.keys if isinstance(one, ast.Dict) else ():
            if name in words.mappings and isinstance(key, ast.Constant) and key.value not in words.mappings[name]:
                yield _unknown(file, line, f"key of {name}", str(key.value), words.mappings[name])
    try:
        value = ast.literal_eval(node)
    except ValueError:  # a name or a condition: known only when it runs
        return
    if any(isinstance(one, ast.Constant) and one.value is ... for one in ast.walk(node)):
        return
    problem = words.tools[tool].problem_with(name, value)
    if problem is not None:
        yield Problem(file, line, f"{tool}({name}={ast.unparse(node)}) is refused", problem)
    elif name == "request" and value:
        yield from _check_request(file, line, value)
    elif name == "skill" and value not in words.skills:
        yield _unknown(file, line, "skill", value, words.skills)


def _check_request(file: str, line: int, request: str) -> Iterator[Problem]:
    try:
        unknown = parse_request(request).unknown
    except RequestError as error:
        yield Problem(file, line, f"the request {request!r} is refused", str(error))
        return
    if unknown:
        said = ", ".join(repr(one.text) for one in unknown)
        yield Problem(
            file, line, f"the request {request!r} has words without effect: {said}", "See rllm-clarify's table"
        )


def _check_command(file: str, line: int, text: str, root: CommandWords) -> Iterator[Problem]:
    try:
        tokens = shlex.split(text.replace("…", " … "))[1:]
    except ValueError:
        yield Problem(file, line, f"{text} cannot be read as a command", "Close its quotes")
        return
    node, path, places = root, "mcp-evo", 0
    while tokens:
        token = tokens.pop(0)
        if token.startswith("-") and token != "-":
            name, _, value = token.partition("=")
            if name not in node.options:
                yield _unknown(file, line, f"option of {path}", name, node.options)
                return
            if not value and node.options[name]:
                tokens = tokens[1:]
        elif node.children:
            if _PLACEHOLDER.match(token):
                return
            if token not in node.children:
                yield _unknown(file, line, f"command of {path}", token, node.children)
                return
            node, path = node.children[token], f"{path} {token}"
        elif token not in ("…", "..."):
            places += 1
    if not node.children and node.places is not None and places > node.places:
        said = f"{path} takes {node.places} word(s), {places} are given"
        yield Problem(file, line, said, f"See {path} --help")


def _unknown(file: str, line: int, what: str, name: str, known: Iterable[str]) -> Problem:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        fix = f"Did you mean {near[0]}?"
    elif len(names) <= 40:
        fix = f"There are: {', '.join(names)}" if names else "There is none"
    else:
        fix = "Name one that exists, or leave the backticks out"
    return Problem(file, line, f"there is no {what} '{name}'", fix)
