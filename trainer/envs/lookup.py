"""`lookup`: follow a chain of facts through a small register with distractors. Reward 1 for the right final value."""

import random
from typing import Any

from trainer.envs.base import Row, Split, draw, split_of

PEOPLE = (
    "Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jon", "Kim", "Leo",
    "Mia", "Ned", "Ola", "Pia", "Quin", "Rosa", "Sam", "Tess", "Uma", "Vic", "Will", "Zoe",
)  # fmt: skip
LINKS = ("friend", "boss", "teacher")
VALUES = {
    "city": ("Rome", "Oslo", "Lima", "Cairo", "Delhi", "Paris"),
    "pet": ("cat", "dog", "fish", "bird", "horse", "frog"),
    "colour": ("red", "blue", "green", "black", "white", "pink"),
}
HOPS = {"simple": (1,), "mixed": (1, 2), "hard": (2, 3)}
"""Links before the value, by difficulty."""


def facts_of(rng: random.Random) -> dict[str, dict[str, str]]:
    """Who is whose friend, boss and teacher, and everybody's city, pet and colour: the links and their distractors."""
    facts: dict[str, dict[str, str]] = {}
    for person in PEOPLE:
        others = [p for p in PEOPLE if p != person]
        facts[person] = {link: rng.choice(others) for link in LINKS}
        facts[person] |= {name: rng.choice(choices) for name, choices in VALUES.items()}
    return facts


class Lookup:
    """Multi-step retrieval."""

    system_prompt = "Solve the task with the tools."

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, str]] = {}
        self._expected = ""
        self._reward = 0.0
        self.finished = False

    @classmethod
    def tasks(cls, split: Split, n: int, seed: int, difficulty: str = "mixed", **env_args: Any) -> list[Row]:
        """Rows with `prompt`, `answer` and `register` (the seed of the facts); registers differ between the splits."""
        if env_args:
            raise ValueError(f"lookup takes no env_args; got {', '.join(sorted(env_args))}.")

        def make(rng: random.Random) -> tuple[int, Row]:
            number = rng.randrange(10**6)
            facts = facts_of(random.Random(f"register/{number}"))
            person, chain = rng.choice(PEOPLE), [rng.choice(LINKS) for _ in range(rng.choice(HOPS[difficulty]))]
            value = rng.choice(tuple(VALUES))
            target = person
            for link in chain:
                target = facts[target][link]
            of = "".join(f"the {link} of " for link in reversed(chain))
            prompt = f"What is the {value} of {of}{person}?"
            return number, {"prompt": prompt, "answer": facts[target][value], "register": number}

        return draw(make, Split(split), n, seed, scope=f"lookup/{difficulty}")

    @classmethod
    def solution(cls, row: Row) -> list[tuple[str, dict[str, Any]]]:
        """One look-up a link, then the value's, then the answer."""
        words = row["prompt"].removeprefix("What is the ").removesuffix("?").split(" of ")
        value, person = words[0], words[-1]
        facts = facts_of(random.Random(f"register/{row['register']}"))
        calls: list[tuple[str, dict[str, Any]]] = []
        for field in [*(word.removeprefix("the ") for word in reversed(words[1:-1])), value]:
            calls.append(("look_up", {"person": person, "field": field}))
            person = facts[person][field]
        return [*calls, ("finish", {"answer": row["answer"]})]

    @classmethod
    def owner(cls, row: Row) -> Split:
        """The split of the register."""
        return split_of(row["register"])

    def reset(self, answer: str = "", register: int = 0, **_: Any) -> None:
        """Takes the expected answer and the seed of the facts."""
        self._facts = facts_of(random.Random(f"register/{register}"))
        self._expected, self._reward, self.finished = str(answer), 0.0, False

    def finish(self, answer: str) -> str:
        """
        Submit the final answer.

        Args:
            answer: The final value.
        """
        self._reward = float(str(answer).strip().lower() == self._expected.lower())
        self.finished = True
        return "done"

    def look_up(self, person: str, field: str) -> str:
        """
        Read one field of a person.

        Args:
            person: The name of the person.
            field: The field, e.g. friend or city.
        """
        if person not in self._facts:
            raise ValueError(f"nobody is called {person}")
        if field not in self._facts[person]:
            raise ValueError(f"{person} has no field {field}")
        return self._facts[person][field]

    def get_reward(self) -> float:
        """1 for the right value, else 0."""
        return self._reward
