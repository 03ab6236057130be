"""Other values for a template's slots, and the calls that they make. Draws are keyed; nothing here decides."""

import random
from collections.abc import Sequence

from trainer.datafiles import Row
from trainer.experience.trajectories import Call
from trainer.generation.play import Player
from trainer.generation.templates import Template
from trainer.generation.types import Attempt


class CallRefused(Exception):
    """A template's calls cannot be made with these values."""


class Values:
    """What slots may be filled with.

    A number lies within those that originals have at this place of a question of this shape (of one with these calls,
    whatever its words), or, where that is only one, within those of the argument. A text is one that was seen as this
    argument of this tool.
    """

    def __init__(
        self,
        templates: Sequence[Template],
        seen: Sequence[Sequence[tuple[str, ...]]],
        attempts: Sequence[Attempt],
    ) -> None:
        """`seen`: for each template, the values with which originals ask it."""
        self._numbers: dict[tuple[str, int], list[str]] = {}
        self._of_role: dict[tuple[str, bool], list[str]] = {}
        for template, fillings in zip(templates, seen, strict=True):
            for values in (template.values, *fillings):
                for number, (slot, value) in enumerate(zip(template.slots, values, strict=True)):
                    self._of_role.setdefault((slot.role, slot.number), []).append(value)
                    if slot.number:
                        self._numbers.setdefault((template.shape, number), []).append(value)
        for attempt in attempts:
            for call in attempt.calls:
                for name, value in call.arguments.items():
                    texts = self._of_role.get((f"{call.tool}.{name}", False))
                    if texts is not None and isinstance(value, str):
                        texts.append(value)

    def draw(self, template: Template, rng: random.Random, *, wide: bool = False) -> tuple[str, ...]:
        """Values for all slots of a template. `wide`: numbers within all those of the argument."""
        drawn = []
        for number, slot in enumerate(template.slots):
            seen = self._of_role[slot.role, slot.number]
            if slot.number:
                close = self._numbers[template.shape, number]
                drawn.append(_number(seen if wide or len(set(close)) < 2 else close, rng))
            else:
                drawn.append(rng.choice(sorted(set(seen))))
        return tuple(drawn)


def _number(seen: Sequence[str], rng: random.Random) -> str:
    """A whole number within what was seen; one of those that were seen where they are no plain whole numbers."""
    whole = [int(text) for text in seen if text.isdigit()]
    if len(whole) < len(seen) or any(str(number) != text for number, text in zip(whole, seen, strict=True)):
        return rng.choice(sorted(set(seen)))
    return str(rng.randint(min(whole), max(whole)))


def perform(
    player: Player, template: Template, values: Sequence[str], row: Row, seed: int
) -> tuple[tuple[Call, ...], float]:
    """(calls, reward) of a template's calls in a fresh instance of a row's world, each with the answers before it.

    Raises CallRefused, EnvironmentTrouble.
    """
    stage = player.open(row, seed)
    try:
        for one in template.calls:
            if stage.finished:
                raise CallRefused(f"the episode ends before {one.tool}")
            try:
                arguments = one.filled(values, [call.result.strip() for call in stage.calls])
            except ValueError as error:
                raise CallRefused(f"{one.tool}: {error}") from error
            made = stage.call(one.tool, arguments)
            if made.failed:
                raise CallRefused(f"{one.tool}: {made.result}")
        return tuple(stage.calls), stage.reward()
    finally:
        stage.close()
