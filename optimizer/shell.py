"""A shell command taken apart, without being interpreted: its simple commands and where they write.

Only what stands in command position counts: text in quotes, here-documents and comments are data. Variables and
substitutions stay as they are written. Good enough for evidence that is shown with its line; never a fact about files.
"""

import re
from typing import NamedTuple

MAX_CHARACTERS = 8192
"""Of a command without its here-documents; what lies behind is not looked at."""

_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_COMMENT = re.compile(r"#(?<=[\s;]#)[^\n]*")
_CONTINUED = re.compile(r"\\\n[ \t]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_REDIRECTION = re.compile(r">(?<![-=>]>)(>?)\|?(?!&)\s*([^\s&|;<>()]+)")
_FILE_NAME = re.compile(r"[\w@+-][\w@+.-]*\.[A-Za-z]\w{0,9}\Z")
_MARK = "\x01"
"""Stands for a quoted part while the rest is taken apart; a shell command holds none."""

_WRAPPERS = frozenset(
    {"sudo", "time", "nohup", "exec", "command", "builtin", "then", "do", "else", "if", "elif", "while", "until", "!"}
    | {"env", "nice", "setsid", "stdbuf", "timeout", "xargs", "uv", "poetry", "pipenv", "run", "{"}
)


_SILENT = frozenset({"echo", "cd", "printf", "export", "set", "true", "exit", "fi", "done", "for", "pwd"})
"""Programs that name no file of the work and are evidence of nothing."""

_WRITERS = frozenset({"tee", "sed", "cp", "mv"})


class ShellCommand(NamedTuple):
    """What a command line runs and writes."""

    commands: list[tuple[str, list[str]]]
    """(program without its folder, words with the program first) of each simple command."""
    redirections: list[tuple[str, str]]
    """(path, `>` or `>>`)."""
    writes: bool
    """Some command is one of those that write the files they name."""


NO_COMMAND = ShellCommand([], [], False)


def read_command(command: str) -> ShellCommand:
    """The simple commands and redirections of a command line. Assignments, keywords and wrappers (`sudo`,
    `timeout 60`, `uv run`) before a program are left out."""
    if _MARK in command:
        command = command.replace(_MARK, " ")
    text = _without_heredocs("\n" + command) if "<<" in command else "\n" + command
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS]
    if "\\\n" in text:
        text = _CONTINUED.sub(" ", text)
    quoted: list[str] = []
    if "'" in text or '"' in text:
        text = _without_quotes(text, quoted)
    if "#" in text:
        text = _without_comments(text, quoted)
    pieces = text
    if "|" in pieces:
        pieces = pieces.replace("|", "\n")
    if ";" in pieces:
        pieces = pieces.replace(";", "\n")
    if "(" in pieces:
        pieces = pieces.replace("(", "\n").replace(")", "\n")
    if "`" in pieces:
        pieces = pieces.replace("`", "\n")
    if "&" in pieces:
        pieces = pieces.replace("&&", "\n").replace(" & ", "\n").replace("&\n", "\n")
    found: list[tuple[str, list[str]]] = []
    writes = False
    used = 0
    for piece in pieces.split("\n"):
        words = piece.split()
        if not words:
            continue
        if quoted and _MARK in piece:
            used = _fill(words, quoted, used)
        program = words[0]
        if program in _SILENT:
            continue
        if program in _WRAPPERS or "=" in program:
            words = _without_wrappers(words)
            if not words:
                continue
            program = words[0]
        if "/" in program:
            program = program.rsplit("/", 1)[-1]
        if program in _WRITERS:
            writes = True
        found.append((program, words))
    redirections: list[tuple[str, str]] = []
    if ">" in text:
        text = text.replace("2>&1", "").replace("2>/dev/null", "")  # most redirections are these
        if ">" in text:
            _redirections(text, quoted, redirections)
    return ShellCommand(found, redirections, writes)


def _without_heredocs(text: str) -> str:
    kept: list[str] = []
    position = 0
    at = text.find("<<")
    while at >= 0:
        found = _HEREDOC.match(text, at)
        line_end = -1 if found is None else text.find("\n", found.end())
        if found is None or line_end < 0:
            at = text.find("<<", at + 2)
            continue
        body = line_end
        while found is not None:  # several may begin in one line; their texts follow each other
            kept.append(text[position : found.start()])
            position = found.end()
            body = _end_of_heredoc(text, body, found[2])
            found = _HEREDOC.search(text, position, line_end)
        kept.append(text[position:line_end])
        position = body
        at = text.find("<<", position)
    kept.append(text[position:])
    return "".join(kept)


def _end_of_heredoc(text: str, start: int, tag: str) -> int:
    """Where the command goes on behind a here-document that begins at `start`; its end where nothing closes it."""
    closing = text.find(tag, start)
    while closing >= 0:
        line = text.rfind("\n", 0, closing)
        end = closing + len(tag)
        if not text[line:closing].strip() and (end == len(text) or text[end] in " \t\n"):
            return end
        closing = text.find(tag, end)
    return len(text)


def _without_quotes(text: str, quoted: list[str]) -> str:
    """The text with a mark for each quoted part; the parts are appended to `quoted`."""
    parts: list[str] = []
    position = 0
    double, single = text.find('"'), text.find("'")
    while double >= 0 or single >= 0:
        if single < 0 or 0 <= double < single:
            start, end = double, text.find('"', double + 1)
            while end > 0 and text[end - 1] == "\\":
                end = text.find('"', end + 1)
        else:
            start, end = single, text.find("'", single + 1)
        if end < 0:
            break
        parts.append(text[position:start])
        quoted.append(text[start + 1 : end])
        position = end + 1
        if 0 <= double < position:
            double = text.find('"', position)
        if 0 <= single < position:
            single = text.find("'", position)
    parts.append(text[position:])
    return _MARK.join(parts)


def _without_comments(text: str, quoted: list[str]) -> str:
    """The text without comments, and `quoted` without the parts that stood in them."""
    parts: list[str] = []
    position = passed = 0
    for found in _COMMENT.finditer(text):
        kept = text[position : found.start()]
        parts.append(kept)
        passed += kept.count(_MARK)
        gone = found[0].count(_MARK)
        if gone:
            del quoted[passed : passed + gone]
        position = found.end()
    parts.append(text[position:])
    return "".join(parts)


def _fill(words: list[str], quoted: list[str], used: int) -> int:
    """Puts what was quoted back into the words; returns how many quoted parts are used up then."""
    for number, word in enumerate(words):
        if word == _MARK:
            words[number] = quoted[used]
            used += 1
        elif _MARK in word:
            first, *others = word.split(_MARK)
            words[number] = first + "".join(part + other for part, other in zip(quoted[used:], others, strict=False))
            used += len(others)
    return used


def _redirections(text: str, quoted: list[str], found: list[tuple[str, str]]) -> None:
    """Adds (path, `>` or `>>`) for each redirection into a file."""
    for match in _REDIRECTION.finditer(text):
        path = match[2]
        if _MARK in path:
            target = [path]
            _fill(target, quoted, text.count(_MARK, 0, match.start(2)))
            path = target[0]
        _add(found, path, ">" + match[1])


def _without_wrappers(words: list[str]) -> list[str]:
    wrapped = False
    for number, word in enumerate(words):
        if word in _WRAPPERS:
            wrapped = True
        elif not (_ASSIGNMENT.match(word) or (wrapped and (word[0] == "-" or word[0].isdigit()))):
            return words[number:]
    return []


def path_keys(shell: ShellCommand) -> list[str]:
    """Last components of the files that the commands name: words with an extension, no options, no URLs."""
    found: list[str] = []
    for _, words in shell.commands:
        for word in words[1:]:
            if "." in word and word[0] not in "-$<>|&" and len(word) < 300:
                key = word.rsplit("/", 1)[-1]
                if key not in found and _FILE_NAME.match(key) and "://" not in word:
                    found.append(key)
    return found


def written_files(shell: ShellCommand) -> list[tuple[str, str]]:
    """(path, how) of files that the command seems to write: redirections, `tee`, `sed -i`, targets of `cp` and `mv`."""
    if not shell.writes:
        return shell.redirections
    found = list(shell.redirections)
    for program, words in shell.commands:
        if program not in _WRITERS:
            continue
        arguments = _arguments(words)
        if program == "tee":
            for path in arguments:
                _add(found, path, "tee")
        elif program == "sed":
            if any(word.startswith(("-i", "--in-place")) for word in words[1:]):
                for path in arguments[1:]:
                    _add(found, path, "sed -i")
        elif len(arguments) > 1:
            _add(found, arguments[-1], program)
    return found


def _arguments(words: list[str]) -> list[str]:
    """The words behind the program that are neither options nor redirections."""
    found: list[str] = []
    target = False
    for word in words[1:]:
        if target:
            target = False
        elif word.lstrip("0123456789&")[:1] in ("<", ">"):
            target = word.lstrip("0123456789&").strip("<>|&") == ""
        elif word[:1] != "-":
            found.append(word)
    return found


def _add(found: list[tuple[str, str]], path: str, how: str) -> None:
    if path and not path.startswith(("/dev/", "&", "$(", "`")) and (path, how) not in found:
        found.append((path, how))
