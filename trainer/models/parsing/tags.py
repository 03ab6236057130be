"""Text between `<tool_call>` and `</tool_call>`."""

from dataclasses import dataclass, field

OPEN, CLOSE = "<tool_call>", "</tool_call>"


@dataclass
class Tagged:
    """A text taken apart at the tags."""

    outside: str = ""
    bodies: list[str] = field(default_factory=list)
    unclosed: bool = False
    """The last opening tag has no closing one; what follows it is in no body."""
    stray: bool = False
    """A closing tag stands outside."""

    @property
    def errors(self) -> list[str]:
        """What is wrong with the tags themselves."""
        errors = [f"{OPEN} was not closed with {CLOSE}"] if self.unclosed else []
        return [*errors, f"{CLOSE} without {OPEN}"] if self.stray else errors


def take_apart(text: str) -> Tagged:
    """Bodies in order; they never hold a closing tag."""
    found = Tagged()
    outside: list[str] = []
    at = 0
    while True:
        start = text.find(OPEN, at)
        if start < 0:
            outside.append(text[at:])
            break
        outside.append(text[at:start])
        end = text.find(CLOSE, start)
        if end < 0:
            found.unclosed = True
            break
        found.bodies.append(text[start + len(OPEN) : end])
        at = end + len(CLOSE)
    rest = "".join(outside)
    found.stray = CLOSE in rest
    found.outside = rest.replace(CLOSE, "").strip()
    return found
