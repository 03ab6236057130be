"""What an agent's client runs when it loads a skill: commands in the text. No patch adds, changes or removes one.

A client executes `` !`command` `` and what stands in a fence whose info string begins with `!` before the model reads
the skill (https://code.claude.com/docs/en/skills, "inject dynamic context"). Clients find them with patterns over the
whole text, not by reading Markdown: a command may go over several lines, and such a fence counts wherever it opens, in
a quotation or a list, too. Tools that need no permission (`allowed-tools`), hooks and scripts stand in the front matter
of the base and in its folders, which a patch file has no way to name.
"""

import re
from dataclasses import dataclass

_COMMAND = re.compile(r"(?:^|[^\w`])!`(?:[^`]|$)|(?:`{3,}|~{3,})[ \t]*!")
_OPENS = re.compile(r"(?:```|~~~)[ \t]*!")
_WHOLE = re.compile(
    r"(?P<fence>`{3,}|~{3,})[ \t]*![\s\S]*?(?:(?P=fence)|\Z)|(?:^|(?<=[^\w`]))!`(?!`)(?:[^`]+`|[\s\S]*\Z)", re.MULTILINE
)


def holds_command(line: str) -> bool:
    """Whether the line is, or opens, something that runs when the skill loads."""
    return "!" in line and _COMMAND.search(line) is not None


@dataclass(frozen=True)
class Command:
    """One command of a text, from its opening to its end (the end of the text where it has none)."""

    text: str
    line: int
    """Line of the text where it opens, from 0."""


def commands_of(text: str) -> list[Command]:
    """The commands of a text, in reading order."""
    if "!`" not in text and _OPENS.search(text) is None:  # quick, unlike what follows: nearly every text ends here
        return []
    return [Command(one.group(), text[: one.start()].count("\n")) for one in _WHOLE.finditer(text)]
