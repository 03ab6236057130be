"""Failures that no structured evidence shows: a shell goes on behind a command that failed (`;`, `|`, a heredoc).

A heuristic over what a Bash call printed, in three parts.

1. *Masked*: the call's own command made the shell, a core utility, git or the interpreter complain. A line counts where
   the complaining program begins it; a traceback counts where its first frame is `<string>` or `<stdin>`, which is the
   command's own text. A complaint in the middle of a line is some log's.
2. *Reported*: a script that the command ran ends in a line `Error: …`, or a program tells `Error doing …: …`, and
   nothing in the command reads a log or other text, where such a line would be somebody else's.
3. Not a failure: a complaint that calls itself a warning, and a *probe*: a missing file where the command provides for
   it (`|| …` behind the utility) or waits for it (`sleep` before it).
"""

import re

from optimizer.shell import read_command

_SHELL_BEGINNING = re.compile(r"(?:/bin/)?(?:ba|z|da)?sh: (?!warning)")
_SHELL_WORDS = ("command not found", "No such file or directory", "Permission denied", "syntax error")

_UTILITIES = (
    *("ls", "cat", "head", "tail", "wc", "cp", "mv", "rm", "diff", "sed", "awk", "find", "bfs", "grep", "ugrep"),
    *("stat", "chmod", "mkdir", "timeout", "dmesg", "git", "curl", "tar", "du"),
)
_UTILITY_BEGINNING = re.compile(r"(" + "|".join(_UTILITIES) + r"): (?!warning)")
_UTILITY_WORDS = ("No such file", "cannot ", "not permitted", "Permission denied", "failed", "error")

_READERS = frozenset({"ls", "cat", "head", "tail", "wc", "stat", "find", "grep", "ugrep", "du", "bfs"})
"""Utilities that change nothing: with them a command may look whether something is there yet."""

_GIT = "fatal: "
_BEGINNING = re.compile(r"\n[/a-z][a-z/]{1,8}: ")
"""What any of the beginnings looks like: one quick look before all others, and most outputs have none."""
_TRACEBACK = "Traceback (most recent call last)"
_OWN_TRACEBACK = re.compile(re.escape(_TRACEBACK) + r':?\s*\n\s+File "<(?:string|stdin)>"')
_PYTHON = re.compile(r"\bpython[\d.]*\b")
OWN_TRACEBACK = "python traceback from <string>/<stdin>"

_REPORT = re.compile(r"\n(Error(?:: | \w+ing\b[^\n:]*: )[^\n]*)")
_TEXT_READERS = frozenset(
    {"tail", "cat", "head", "less", "more", "grep", "egrep", "rg", "sed", "awk", "journalctl", "docker", "kubectl"}
    | {"ssh", "tmux", "watch", "dmesg", "zcat", "jq", "diff", "git", "gh", "curl"}
)
_SHOWN = 120


def printed(stdout: str, stderr: str) -> str:
    """What a command printed, each line behind a line feed."""
    return f"\n{stdout}\n{stderr}"


def says_nothing(command: str, text: str) -> bool:
    """Whether the output holds nothing that the rules below look for; true of most outputs, and quickly told."""
    if _BEGINNING.search(text) is not None:
        return False
    return "python" not in command or not ("\nError" in text or _TRACEBACK in text)


def candidate(command: str, text: str) -> str | None:
    """The complaint of the command's own programs, in the order shell, utilities, git, interpreter; None: there is
    none. Warnings that name a missing file and probes are candidates too. `text` is what it `printed`."""
    return _complaint(command, text, sure=False)


def masked_failure(command: str, text: str) -> str | None:
    """Like `candidate`, without warnings and probes."""
    return _complaint(command, text, sure=True)


def reported_failure(command: str, text: str) -> str | None:
    """The line in which the program that the command ran says that it failed, or None."""
    if "python" not in command or "\nError" not in text or _PYTHON.search(command) is None:
        return None
    found = _REPORT.search(text)
    if found is None:
        return None
    commands = read_command(command).commands
    if any(program in _TEXT_READERS for program, _ in commands):
        return None
    if found[1].startswith("Error: ") and not any(_runs_a_script(program, words) for program, words in commands):
        return None  # an inline program prints what it likes
    return found[1][:_SHOWN]


def _runs_a_script(program: str, words: list[str]) -> bool:
    return program.startswith("python") and any(word.endswith(".py") or word == "-m" for word in words[1:])


def _complaint(command: str, text: str, *, sure: bool) -> str | None:
    if _BEGINNING.search(text) is not None:
        line = _first_line(text, _SHELL_BEGINNING, _SHELL_WORDS, None, sure=sure)
        if line is None:
            line = _first_line(text, _UTILITY_BEGINNING, _UTILITY_WORDS, command, sure=sure)
        if line is None and "\n" + _GIT in text:
            line = _line_at(text, text.find("\n" + _GIT) + 1)
        if line is not None:
            return line[:_SHOWN]
    if "python" in command and _TRACEBACK in text and _OWN_TRACEBACK.search(text) and _PYTHON.search(command):
        return OWN_TRACEBACK
    return None


def _first_line(
    text: str, beginning: re.Pattern[str], words: tuple[str, ...], command: str | None, *, sure: bool
) -> str | None:
    """The first line that has the beginning and, behind it, one of the words. Words are sought first: most outputs
    hold none, and a search for a fixed text costs next to nothing."""
    first = len(text)
    for word in words:
        at = text.find(word, 0, first)
        while at >= 0:
            start = text.rfind("\n", 0, at) + 1
            found = beginning.match(text, start)
            if found is not None and found.end() <= at and not (sure and _harmless(found, text, start, command)):
                first = start
                break
            end = text.find("\n", at)
            at = -1 if end < 0 else text.find(word, end, first)
    return None if first == len(text) else _line_at(text, first)


def _harmless(found: re.Match[str], text: str, start: int, command: str | None) -> bool:
    line = _line_at(text, start)
    if ": warning: " in line:
        return True
    if command is None or found[1] not in _READERS or "No such file" not in line:
        return False
    return _provided_for(command, found[1])


def _provided_for(command: str, utility: str) -> bool:
    """Whether the command expects that the utility may find nothing: an alternative behind it, a wait before it."""
    own = re.escape(utility)
    if re.search(rf"(?:^|[;&|(\n]|\b(?:then|do|else|if|until|while)\s)\s*{own}\s[^;\n|]*\|\|", command):
        return True
    if re.search(rf"\b(?:if|until|while)\s+!?\s*{own}\s", command):
        return True
    return re.search(rf"\bsleep\s+\d[\s\S]*\b{own}\s", command) is not None


def _line_at(text: str, start: int) -> str:
    end = text.find("\n", start)
    return text[start:] if end < 0 else text[start:end]
