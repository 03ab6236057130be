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
_SEPARATORS = ("&&", "||", ";", "|", "$(", "(", ")", "`", " & ", "&\n")
_CONTINUED = re.compile(r"\\\n[ \t]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_REDIRECTION = re.compile(r">(?<![-=>]>)(>?)\|?(?!&)\s*([^\s&|;<>()]+)")
_PATH = re.compile(r"[\w@%+=:,./~-]+\Z")
_FILE_NAME = re.compile(r"[\w@+-][\w@+.-]*\.[A-Za-z]\w{0,9}\Z")

_MARKS = [chr(0xE000 + number) for number in range(4096)]
"""Characters of no language: each stands for one quoted part while the rest is taken apart."""

_WRAPPERS = frozenset(
    {"sudo", "time", "nohup", "exec", "command", "builtin", "then", "do", "else", "if", "elif", "while", "until", "!"}
    | {"env", "nice", "setsid", "stdbuf", "timeout", "xargs", "uv", "poetry", "pipenv", "run", "{"}
)


class ShellCommand(NamedTuple):
    """What a command line runs and writes."""

    commands: list[list[str]]
    """The words of each simple command, program first."""
    redirections: list[tuple[str, str]]
    """(path, `>` or `>>`)."""


NO_COMMAND = ShellCommand([], [])


def read_command(command: str) -> ShellCommand:
    """The simple commands and redirections of a command line. Assignments, keywords and wrappers (`sudo`,
    `timeout 60`, `uv run`) before a program are left out."""
    text = "\n" + command
    if "<<" in text:
        text = _without_heredocs(text)
    if len(text) > MAX_CHARACTERS:
        text = text[:MAX_CHARACTERS]
    if "\\\n" in text:
        text = _CONTINUED.sub(" ", text)
    quoted: list[str] = []
    if "'" in text or '"' in text:
        text = _without_quotes(text, quoted)
    if "#" in text:
        text = _COMMENT.sub("", text)
    pieces = text
    for separator in _SEPARATORS:
        if separator in pieces:
            pieces = pieces.replace(separator, "\n")
    found: list[list[str]] = []
    for piece in pieces.split("\n"):
        words = piece.split()
        if words:
            if words[0] in _WRAPPERS or "=" in words[0]:
                words = _without_wrappers(words)
                if not words:
                    continue
            if quoted and not piece.isascii():
                words = [word if word.isascii() else _plain(word, quoted) for word in words]
            found.append(words)
    redirections: list[tuple[str, str]] = []
    if ">" in text:
        for match in _REDIRECTION.finditer(text):
            _add(redirections, match[2] if match[2].isascii() else _plain(match[2], quoted), ">" + match[1])
    return ShellCommand(found, redirections)


def simple_commands(command: str) -> list[list[str]]:
    """The words of each simple command, program first."""
    return read_command(command).commands


def _without_heredocs(text: str) -> str:
    kept: list[str] = []
    position = 0
    while (found := _HEREDOC.search(text, position)) is not None:
        line_end = text.find("\n", found.end())
        if line_end < 0:
            break
        closing = re.compile(rf"\n[ \t]*{found[2]}[ \t]*(?=\n|\Z)").search(text, line_end)
        kept.append(text[position : found.start()] + text[found.end() : line_end])
        position = len(text) if closing is None else closing.end()
    kept.append(text[position:])
    return "".join(kept)


def _without_quotes(text: str, quoted: list[str]) -> str:
    """The text with a mark for each quoted part; the parts are appended to `quoted`."""
    parts: list[str] = []
    position = 0
    double, single = text.find('"'), text.find("'")
    while (double >= 0 or single >= 0) and len(quoted) < len(_MARKS):
        if single < 0 or 0 <= double < single:
            start, end = double, text.find('"', double + 1)
            while end > 0 and text[end - 1] == "\\":
                end = text.find('"', end + 1)
        else:
            start, end = single, text.find("'", single + 1)
        if end < 0:
            break
        parts.append(text[position:start])
        parts.append(_MARKS[len(quoted)])
        quoted.append(text[start + 1 : end])
        position = end + 1
        if 0 <= double < position:
            double = text.find('"', position)
        if 0 <= single < position:
            single = text.find("'", position)
    parts.append(text[position:])
    return "".join(parts)


def _without_wrappers(words: list[str]) -> list[str]:
    wrapped = False
    for number, word in enumerate(words):
        if word in _WRAPPERS:
            wrapped = True
        elif not (_ASSIGNMENT.match(word) or (wrapped and (word[0] == "-" or word[0].isdigit()))):
            return words[number:]
    return []


def _plain(word: str, quoted: list[str]) -> str:
    """The word with what was quoted in it."""
    if len(word) == 1:
        return quoted[ord(word) - 0xE000] if 0 <= ord(word) - 0xE000 < len(quoted) else word
    parts = []
    for character in word:
        number = ord(character) - 0xE000
        parts.append(quoted[number] if 0 <= number < len(quoted) else character)
    return "".join(parts)


def path_keys(commands: list[list[str]]) -> list[str]:
    """Last components of the files that the commands name: words with an extension, no options, no URLs."""
    found: list[str] = []
    for words in commands:
        for word in words[1:]:
            if "." in word and word[0] not in "-$<>|&" and len(word) < 300 and _PATH.match(word):
                key = word.rsplit("/", 1)[-1]
                if _FILE_NAME.match(key) and "://" not in word and key not in found:
                    found.append(key)
    return found


def written_files(shell: ShellCommand) -> list[tuple[str, str]]:
    """(path, how) of files that the command seems to write: redirections, `tee`, `sed -i`, targets of `cp` and `mv`."""
    found = list(shell.redirections)
    for words in shell.commands:
        program = words[0].rsplit("/", 1)[-1]
        if program == "tee":
            for path in _arguments(words):
                _add(found, path, "tee")
        elif program == "sed":
            if any(word.startswith(("-i", "--in-place")) for word in words[1:]):
                for path in _arguments(words)[1:]:
                    _add(found, path, "sed -i")
        elif program == "cp" or program == "mv":
            arguments = _arguments(words)
            if len(arguments) > 1:
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
