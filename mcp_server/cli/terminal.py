"""Consoles of the command line: what is printed cannot take the terminal over or hide anything in it."""

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from skill_bank.visible import visible_text


class SafeConsole(Console):
    """A console that shows unseen characters of texts as marks. Its own colours and movements of the cursor stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of something, with visible texts only."""
        for text, style, control in super().render(renderable, options):
            yield Segment(visible_text(text) if control is None else text, style, control)
