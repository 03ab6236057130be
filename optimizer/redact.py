"""Secrets are taken out before anything is stored.

1. *Shapes*: keys whose makers gave them a recognisable form, private keys, bearer and basic headers, cookies, logins in
   URLs, wherever they stand in a text.
2. *Names*: the value assigned to a name that says it is secret (`.env` lines, JSON and YAML in a text, code, options of
   commands, connection strings, fields of a JSON document). Strong names (`password`, `api_key`) hide any literal, weak
   ones (`token`, `key`) only what looks drawn at random. A reference (`os.environ[…]`, `$PASSWORD`, `args.secret`) is
   no secret.
3. What is left is `[redacted:<what>]`. Names, keys of documents, hashes, paths and identifiers stay. Redacting twice
   changes nothing.
4. The workspace's `config.yaml` may say more: `redaction: {patterns: […], fields: […], keep: […]}`, regular expressions
   of further secrets, names of further secret fields, regular expressions of what is none. Nothing switches it off.

Standard library only, and little of it: the hook imports this. A pattern is compiled where a plain search has found
that it may match, which is most of what a process pays that redacts one event.
"""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache

from optimizer.capture.prefilter import HAN_NAMES, LAST_WORDS, STRONG_NAMES, WEAK_NAMES, marks_in, suspicious
from optimizer.secret_shapes import SHAPES, looks_random

TYPE_CHECKING = False
if TYPE_CHECKING:  # what only a reader and a type checker need costs the hook a fifth of its time
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from optimizer.secret_shapes import Replacement, Shape


class RedactionConfigError(ValueError):
    """`redaction` of config.yaml that cannot be used; the message says what is allowed."""


_STRONG = tuple({name.replace("_", "").replace("-", "") for name in STRONG_NAMES} - {"pwd"})
_STRONG_HEADERS = frozenset({"authorization", "proxyauthorization", "cookie", "setcookie"})
_WEAK = tuple(name.strip("_") for name in WEAK_NAMES)

_ALL_NAMES = tuple(sorted((*STRONG_NAMES, *WEAK_NAMES), key=len, reverse=True))
_ASSIGNMENT = r"""(?x)(?P<sign>  \\{0,2}["'`]? [ \t]{0,8} (?::=|=>|[:=]) [ \t]{0,8} )
    (?: (?P<open> \\{0,2}["'`] ) (?P<quoted> (?: (?!(?P=open)) [^\n] ){1,4096} ) (?P=open)
      | (?P<plain> [^\s"'`,;&<>()\[\]{}\\]{1,4096} ) (?P<next> [(\[]? ) )"""
"""What stands behind a name: sign, and a value in quotation marks (which may be escaped) or without."""

_NO_SECRETS = frozenset(
    {
        *("none", "null", "nil", "true", "false", "undefined", "optional", "required", "any", "str", "string", "text"),
        *("bytes", "bool", "boolean", "int", "integer", "number", "float", "object", "dict", "list", "char", "varchar"),
        *("input", "prompt", "value", "field", "getpass", "getenv", "environ", "env", "empty", "default", "unset"),
        *("redacted", "secret", "password", "token", "hidden", "masked", "inherit"),
    }
)
"""Words that stand where a secret would: types, values that are none, names of what is asked for."""

_PLACEHOLDER = "*xX.•…_-"
"""What a value consists of that only shows where one would stand."""

_MIN_SECRET = 4
"""Characters; shorter values of strong names are not hidden (they are flags, numbers, placeholders)."""


def redact_text(text: str) -> str:
    """`text` without secrets."""
    return _STANDARD.redact_text(text)


def redact(value: Any) -> Any:
    """A JSON value without secrets; equal to the input where there are none."""
    return _STANDARD.redact(value)


class Rules:
    """What counts as a secret: the shapes and names above and what a workspace adds."""

    __slots__ = ("fields", "keep", "patterns")

    def __init__(
        self,
        patterns: tuple[re.Pattern[str], ...] = (),
        fields: frozenset[str] = frozenset(),
        keep: tuple[re.Pattern[str], ...] = (),
    ) -> None:
        self.patterns = patterns
        self.fields = fields
        """Folded, letters and digits only."""
        self.keep = keep

    def redact_text(self, text: str) -> str:
        """`text` without secrets."""
        return self._text(text, _shapes_in(text))

    def redact(self, value: Any, *, suspected: bool = False) -> Any:
        """A JSON value without secrets. Raises RecursionError for one that is nested too deeply.

        `suspected`: the caller has looked for signs of a secret and found some; else that is done first, as it is
        quicker than going through the value.
        """
        if not isinstance(value, dict | list):
            return self._redact(value, SHAPES)
        if not value:
            return value
        encoded = json.dumps(value, ensure_ascii=False, default=str)
        searched = suspected or self.patterns or self.fields
        if not searched and not suspicious(encoded.encode("utf-8", "backslashreplace")):
            return value
        return self._redact(value, _shapes_in(encoded))

    def _text(self, text: str, shapes: Sequence[Shape]) -> str:
        """`text` without secrets, of which it holds no other shapes than these."""
        if len(text) < _MIN_SECRET:
            return text
        text = self._without_shapes(text, shapes)
        assigned, options = _names_in(text)
        if assigned:
            text = self._without_assigned(text, assigned)
        if options:
            text = _option(options).sub(self._option_hidden, text)
        for pattern in self.patterns:
            text = pattern.sub(self._replacing("configured", None), text)
        return text

    def _without_shapes(self, text: str, shapes: Sequence[Shape]) -> str:
        folded = text.lower()
        for shape in shapes:
            if shape.may_be_in(text, folded):
                text = shape.pattern.sub(self._replacing(shape.what, shape.replaced), text)
        return text

    def _without_assigned(self, text: str, names: Sequence[tuple[int, int]]) -> str:
        """`text` without the values assigned to names that say they are secret; where the names begin and end."""
        parts: list[str] = []
        copied = end = 0
        for begin, name_end in names:
            match = _assignment().match(text, name_end) if begin >= end else None
            if match is not None:
                end = match.end()
                span = self._secret_in(match, text[begin:name_end], begin)
                if span is not None:
                    parts += (text[copied : span[0]], "[redacted:value]")
                    copied = span[1]
        return "".join((*parts, text[copied:])) if parts else text

    def _redact(self, value: Any, shapes: Sequence[Shape]) -> Any:
        if isinstance(value, str):
            return self._text(value, shapes)
        if isinstance(value, dict):
            return self._document(value, shapes)
        if isinstance(value, list | tuple):
            return [self._redact(one, shapes) for one in value]
        return value

    def _document(self, value: Mapping[Any, Any], shapes: Sequence[Shape]) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        named = self._names_a_secret(value)
        for key, one in value.items():
            if isinstance(key, str) and (self._secret_field(key, one) or (named and key in ("value", "Value"))):
                one = self._field(one, shapes)
            else:
                one = self._redact(one, shapes)
            out[self._key(key, out, shapes)] = one
        return out

    def _key(self, key: Any, out: Mapping[Any, Any], shapes: Sequence[Shape]) -> Any:
        """A key stays, unless it is a secret itself."""
        if not isinstance(key, str) or len(key) < 16:
            return key
        clean = name = self._without_shapes(key, shapes)
        number = 2
        while clean != key and name in out:
            name, number = f"{clean}#{number}", number + 1
        return name

    def _secret_field(self, key: str, value: Any) -> bool:
        """Whether a field's value is a secret because of the field's name."""
        folded = _letters(key[-80:])
        if folded in self.fields:
            return True
        if not isinstance(value, str) or not value:
            return isinstance(value, int) and not isinstance(value, bool) and folded in ("password", "passwd")
        if folded in _STRONG_HEADERS:
            return True
        if key.endswith(HAN_NAMES):
            return not _is_reference(value, quoted=True)
        if folded.endswith(_STRONG):
            return not _is_reference(value, quoted=True)
        return folded.endswith(_WEAK) and looks_random(value, hexadecimal=not folded.endswith(("key", "sig")))

    def _names_a_secret(self, value: Mapping[Any, Any]) -> bool:
        """`{"name": "DB_PASSWORD", "value": …}`, as environments of containers are written."""
        name = value.get("name", value.get("key"))
        return isinstance(name, str) and self._secret_field(name, value.get("value", value.get("Value")))

    def _field(self, value: Any, shapes: Sequence[Shape]) -> Any:
        if isinstance(value, str):
            kept = value.startswith("[redacted") or any(one.fullmatch(value) for one in self.keep)
            return value if kept else "[redacted:field]"
        if isinstance(value, int) and not isinstance(value, bool):
            return "[redacted:field]"
        if isinstance(value, list | tuple):
            return [self._field(one, shapes) for one in value]
        return self._redact(value, shapes)

    def _replacing(self, what: str, replaced: Replacement | None) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            if any(one.search(match[0]) for one in self.keep):
                return match[0]
            if replaced is None:
                return f"[redacted:{what}]"
            text = replaced(match)
            return match[0] if text is None else text

        return replace

    def _option_hidden(self, match: re.Match[str]) -> str:
        span = self._secret_in(match, match["name"], match.start())
        if span is None:
            return match[0]
        begin, end = (at - match.start() for at in span)
        return f"{match[0][:begin]}[redacted:value]{match[0][end:]}"

    def _secret_in(self, match: re.Match[str], name: str, begin: int) -> tuple[int, int] | None:
        """Where the value assigned to a name stands, if it is a secret; the name or its option begins at `begin`."""
        groups = match.groupdict()
        quoted = groups.get("quoted") is not None
        group = "quoted" if quoted else "plain"
        value = match[group]
        if value.startswith("[redacted") or len(value) < _MIN_SECRET or groups.get("next"):
            return None
        if any(one.search(value) for one in self.keep) or not _hides(match, name, begin, value, quoted):
            return None
        return match.span(group)


def _shapes_in(text: str) -> Sequence[Shape]:
    """The shapes that may be in a text or, if it is JSON, in the texts that it holds: no mark has signs to escape."""
    folded = text.lower()
    begun = marks_in(text.encode("utf-8", "backslashreplace"))
    possible = (shape for shape in SHAPES if not shape.begins or any(mark.startswith(begun) for mark in shape.marks))
    return [shape for shape in possible if shape.may_be_in(text, folded)]


@lru_cache(maxsize=1)
def _assignment() -> re.Pattern[str]:
    return re.compile(_ASSIGNMENT)


@lru_cache(maxsize=64)
def _option(ends: tuple[str, ...]) -> re.Pattern[str]:
    """`--password VALUE` on a command line, for the names that end so."""
    names = "|".join(re.escape(name) for name in _ALL_NAMES if name.endswith(ends))
    return re.compile(
        rf"""(?ix)(?:(?<![^\s"'`=])|(?<=\\[nrt])) --(?:[a-z0-9]+[-_]){{0,6}}(?P<name>{names}) (?P<sign>[ \t]{{1,4}})
        (?P<open>["']?) (?P<plain>[^\s"'\\$<-][^\s"'\\]{{2,4095}})"""
    )


def _names_in(text: str) -> tuple[list[tuple[int, int]], tuple[str, ...]]:
    """Where names with a sign behind them begin and end, and how the names end that may be options with a value.

    Found by plain search, which no text makes slow and no process has to compile first.
    """
    folded = text.lower()
    if len(folded) != len(text):  # a few letters have no lower case of one character
        folded = text.translate(_ASCII_LOWER)
    dashes = folded.find("--")
    found: set[tuple[int, int]] = set()
    options: list[str] = []
    for last in LAST_WORDS:
        at = folded.find(last)
        while at >= 0:
            end = at + len(last)
            behind = folded[end : end + 16]
            if behind.lstrip("\\\"'` \t")[:1] in (":", "="):
                before = folded[max(end - 24, 0) : end]
                found.add((end - max(len(name) for name in _ALL_NAMES if before.endswith(name)), end))
            if 0 <= dashes < at and behind[:1] in (" ", "\t") and last not in options:
                options.append(last)
            at = folded.find(last, end)
    return sorted(found), tuple(options)


_ASCII_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")


def _letters(name: str) -> str:
    """A name in lower case, letters and digits only."""
    return "".join(one for one in name.lower() if one in _LETTERS)


def _hides(match: re.Match[str], name: str, begin: int, value: str, quoted: bool) -> bool:
    """Whether the value assigned to a name is a secret and not a reference, a type or a placeholder."""
    shell = name.isupper() and not quoted and "=" in match["sign"] and match["sign"] == match["sign"].strip()
    if _is_reference(value, quoted=quoted or shell):
        return False
    folded = name.lower()
    if folded == "pwd":  # the working directory, except between the parts of a connection string
        return value[:1] not in "/~." and match.string[max(begin - 1, 0) : begin] in (";", " ", "")
    if folded in WEAK_NAMES and not _ends_strongly(match):
        return looks_random(value, hexadecimal=folded not in ("key", "sig"))
    return True


def _ends_strongly(match: re.Match[str]) -> bool:
    """Whether the name before the sign is a strong one together with what stands before it (`--auth-token`)."""
    end = match.start("sign")
    return match.string[max(end - 24, 0) : end].lower().endswith(STRONG_NAMES)


def _is_reference(value: str, *, quoted: bool) -> bool:
    """Whether a value says where a secret comes from, or that there is none, instead of being it."""
    if value[:1] in "$%" or value.startswith(("${", "{{", "<", "#{", "os.", "process.env", "env:", "[redacted")):
        return True
    if value.rstrip(".:").lower() in _NO_SECRETS or not value.strip(_PLACEHOLDER):
        return True
    if not quoted and (value[:1] == "=" or _is_dotted(value)):
        return True
    return quoted and len(value) > 200 and " " in value  # prose


def _is_dotted(value: str) -> bool:
    """Whether it is a chain of names, as `settings.password`."""
    return "." in value and value.isascii() and all(part.isidentifier() for part in value.split("."))


_STANDARD = Rules()


def rules_of(home: str | os.PathLike[str]) -> Rules:
    """The rules of a workspace: the standard ones and what its `config.yaml` adds.

    A configuration that cannot be read or used leaves the standard rules in force for what it says wrongly; `mcp-evo
    doctor` tells (`checked_rules`).
    """
    path = os.path.join(home, "config.yaml")
    try:
        stat = os.stat(path)
    except OSError:
        return _STANDARD
    return _rules_in(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=16)
def _rules_in(path: str, changed: int, size: int) -> Rules:
    try:
        return checked_rules(path)
    except (OSError, RedactionConfigError):
        return _STANDARD


def checked_rules(path: str | os.PathLike[str]) -> Rules:
    """The rules of a `config.yaml`. Raises RedactionConfigError that says what is wrong, OSError."""
    with open(path, "rb") as stream:
        data = stream.read()
    if b"redaction" not in data:
        return _STANDARD
    import yaml

    try:
        document = yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise RedactionConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    section = document.get("redaction") if isinstance(document, dict) else None
    if section is None:
        return _STANDARD
    if not isinstance(section, dict) or not set(section) <= {"patterns", "fields", "keep"}:
        raise RedactionConfigError(f"{path}: redaction holds lists named patterns, fields and keep, nothing else")
    lists: dict[str, list[str]] = {}
    for name in ("patterns", "fields", "keep"):
        one = section.get(name) or []
        if not isinstance(one, list) or not all(isinstance(text, str) and text for text in one):
            raise RedactionConfigError(f"{path}: redaction.{name} must be a list of texts that are not empty")
        lists[name] = one
    return Rules(
        patterns=_compiled(path, "patterns", lists["patterns"]),
        fields=frozenset(map(_letters, lists["fields"])),
        keep=_compiled(path, "keep", lists["keep"]),
    )


def _compiled(path: str | os.PathLike[str], name: str, texts: list[str]) -> tuple[re.Pattern[str], ...]:
    found = []
    for text in texts:
        try:
            pattern = re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise RedactionConfigError(
                f"{path}: redaction.{name}: {text!r} is no regular expression: {error}"
            ) from error
        if pattern.match("") is not None:
            raise RedactionConfigError(f"{path}: redaction.{name}: {text!r} matches the empty text")
        found.append(pattern)
    return tuple(found)
