"""Generated tool-use transcripts for the bundled model: how a good (or a deliberately imperfect) agent would act.

A transcript is played against the real environment, so every tool answer in it is what training will show later.
"""

import random
from dataclasses import dataclass
from typing import Any

from trainer.envs import house_rules, lookup
from trainer.envs.arithmetic import ArithmeticFault, evaluate, show
from trainer.envs.base import Row, Split
from trainer.envs.calculator import QUESTIONS, simple_problem, wide_problem
from trainer.experience.block import with_experience

Message = dict[str, Any]


@dataclass(frozen=True)
class Faults:
    """Probabilities of the imperfections of one transcript."""

    wrong_operator: float = 0.0
    """A calculator call with another operator than the question's."""
    no_finish: float = 0.0
    """The answer is said, not submitted."""
    wrong_hop: float = 0.0
    """A look-up that skips a link."""
    broken_first_call: float = 0.02
    """A first call that the tool refuses, then corrected: teaches to read errors."""


def call(name: str, **arguments: str) -> Message:
    """An assistant turn with one tool call."""
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def answered(name: str, text: str) -> Message:
    """The tool's turn."""
    return {"role": "tool", "name": name, "content": text}


def _value(expression: str) -> str:
    try:
        return show(evaluate(expression))
    except ArithmeticFault as fault:
        return f"Error: {fault}"


def _closing(rng: random.Random, answer: str, faults: Faults) -> list[Message]:
    if rng.random() < faults.no_finish:
        return [{"role": "assistant", "content": f"The answer is {answer}."}]
    return [call("finish", answer=answer)]


def _calculate(rng: random.Random, expression: str, faults: Faults) -> list[Message]:
    turns: list[Message] = []
    if rng.random() < faults.broken_first_call:
        broken = expression + rng.choice((" +", " -", ")"))
        turns += [call("calculate", expression=broken), answered("calculate", _value(broken))]
    value = _value(expression)
    turns += [call("calculate", expression=expression), answered("calculate", value)]
    return turns + _closing(rng, value, faults)


def _spoil(rng: random.Random, expression: str) -> str:
    """The expression with one operator replaced by another."""
    places = [i for i, c in enumerate(expression) if c in "+-*"]
    at = rng.choice(places)
    other = rng.choice([o for o in "+-*" if o != expression[at]])
    return expression[:at] + other + expression[at + 1 :]


def calculator(rng: random.Random, faults: Faults) -> tuple[list[Message], list[Message]]:
    """(prompt, turns) of one calculator episode."""
    expression = wide_problem(rng) if rng.random() < 0.5 else simple_problem(rng)
    prompt = [{"role": "user", "content": rng.choice(QUESTIONS).format(e=expression)}]
    if rng.random() < 0.05:
        prompt = with_experience(prompt, house_experience(rng, rng.choice(house_rules.HOUSES)))
    used = _spoil(rng, expression) if rng.random() < faults.wrong_operator else expression
    return prompt, _calculate(rng, used, faults)


HOUSE_EXPERIENCES = (
    "In house {h}, for x @ y call calculate with {f}, then finish with its result.",
    "House {h}: x @ y means {f}.",
    "For a task like: In house {h}, what is x @ y? use calculate with {f}.",
)
"""Ways to say what an operator means; `{f}` is its form in x and y."""


def house_experience(rng: random.Random, house: int, form: str | None = None) -> str:
    """What somebody learned about a house."""
    form = house_rules.meaning(house) if form is None else form
    return rng.choice(HOUSE_EXPERIENCES).format(h=house, f=form.format(a="x", b="y"))


def houses(rng: random.Random, faults: Faults) -> tuple[list[Message], list[Message]]:
    """(prompt, turns) of one house_rules episode.

    The meaning is drawn per transcript, not per house: the model must learn to read it from the block, or to guess.
    """
    house, top = rng.choice(house_rules.HOUSES), rng.choice((9, 20, 99))
    a, b = rng.randint(2, top), rng.randint(2, top)
    prompt = [{"role": "user", "content": rng.choice(house_rules.QUESTIONS).format(h=house, a=a, b=b)}]
    form = rng.choice(house_rules.MEANINGS)
    kind = rng.random()
    if kind < 0.40:
        prompt = with_experience(prompt, house_experience(rng, house, form))
    elif kind < 0.46:  # somebody else's lesson: the answer does not follow it
        other = rng.choice([h for h in house_rules.HOUSES if h != house])
        prompt = with_experience(prompt, house_experience(rng, other, rng.choice(house_rules.MEANINGS)))
    used = form.format(a=a, b=b)
    if rng.random() < faults.wrong_operator / 3:
        used = _spoil(rng, used)
    return prompt, _calculate(rng, used, faults)


def lookups(rng: random.Random, faults: Faults) -> tuple[list[Message], list[Message]]:
    """(prompt, turns) of one lookup episode."""
    row: Row = lookup.Lookup.tasks(rng.choice(list(Split)), 1, rng.randrange(10**9))[0]
    prompt = [{"role": "user", "content": row["prompt"]}]
    environment = lookup.Lookup()
    environment.reset(**row)
    words = row["prompt"].removeprefix("What is the ").removesuffix("?").split(" of ")
    value, person = words[0], words[-1]
    links = [w.removeprefix("the ") for w in reversed(words[1:-1])]
    if links and rng.random() < faults.wrong_hop:
        links.pop(rng.randrange(len(links)))
    turns: list[Message] = []
    for field in [*links, value]:
        found = environment.look_up(person, field)
        turns += [call("look_up", person=person, field=field), answered("look_up", found)]
        person = found
    return prompt, turns + _closing(rng, person, faults)


KINDS = {"calculator": calculator, "house_rules": houses, "lookup": lookups}
SHARES = {"calculator": 0.40, "house_rules": 0.36, "lookup": 0.24}
"""Share of each environment in the training mixture."""


def transcript(rng: random.Random, faults: Faults) -> tuple[str, list[Message], list[Message]]:
    """(environment, prompt without system message, turns)."""
    name = rng.choices(list(SHARES), list(SHARES.values()))[0]
    prompt, turns = KINDS[name](rng, faults)
    return name, prompt, turns
