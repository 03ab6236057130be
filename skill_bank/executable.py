"""What an agent's client runs when it loads a skill: commands in the text. No patch adds, changes or removes one.

A client executes `` !`command` `` and the lines of a fence whose info string begins with `!` before the model reads the
skill (https://code.claude.com/docs/en/skills, "inject dynamic context"). Tools that need no permission
(`allowed-tools`), hooks and scripts stand in the front matter of the base and in its folders, which a patch file has no
way to name.
"""

import re

_COMMAND = re.compile(r"(?:^|[^\w`])!`[^`]|^\s*(?:`{3,}|~{3,})\s*!")


def holds_command(line: str) -> bool:
    """Whether the line is, or opens, something that runs when the skill loads."""
    return "!" in line and _COMMAND.search(line) is not None
