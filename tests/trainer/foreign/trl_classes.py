"""Environment classes and reward functions as people write them for TRL 1.16's `environment_factory`.

Nothing of ours is imported here: the tests load these as `python:trl_classes:Name`, unchanged.
"""

import asyncio

WORDS = {"easy": "crane", "hard": "vivid"}


class WordGame:
    """No `get_reward`: the reward function reads the state from `environments`."""

    def __init__(self):
        self.secret = ""
        self.reward = 0.0
        self.done = False

    def reset(self, **kwargs) -> str | None:
        self.secret = WORDS[kwargs.get("level", "easy")]
        self.reward = 0.0
        self.done = False
        return f"Guess a word of {len(self.secret)} letters."

    def guess(self, word: str) -> str:
        """
        Guess the word.

        Args:
            word: The guessed word, in lower case.

        Returns:
            One mark for each letter.
        """
        if self.done:
            raise ValueError("Game over.")
        self.done = word == self.secret
        self.reward = 1.0 if self.done else 0.25
        return "".join("G" if a == b else "X" for a, b in zip(word, self.secret, strict=False))


def reward_from_state(environments, **kwargs) -> list[float]:
    return [environment.reward for environment in environments]


def reward_from_text(completions, level, **kwargs):
    """Reads the completion's messages and a column of the data set."""
    return [float(level[i] in str(completion[-1]["content"])) for i, completion in enumerate(completions)]


async def slow_reward(completions, environments, trainer_state=None, log_metric=None, **kwargs):
    await asyncio.sleep(0)
    log_metric("seen", len(completions))
    return [e.reward * 2 for e in environments]


def reward_without_kwargs(prompts, completions):
    return [float(len(prompt) + len(completion)) for prompt, completion in zip(prompts, completions, strict=True)]


def forgetful_reward(completions, **kwargs):
    return [None] * len(completions)


def greedy_reward(completions, **kwargs):
    return [1.0, 2.0]


class Counter:
    """Grades itself; has no constructor and keeps its state between the calls of one episode."""

    def reset(self, prompt, start: int = 0, **kwargs) -> None:
        self.value = start
        self.goal = prompt[-1]["content"]

    def increment(self, amount: int) -> str:
        """
        Add to the counter.

        Args:
            amount: How much.
        """
        self.value += amount
        return str(self.value)

    def get_reward(self) -> float:
        return 1.0 if str(self.value) in self.goal else 0.0


class AsyncLookup:
    """Asynchronous tools and an asynchronous grader, which call each other."""

    def __init__(self):
        self.lock = asyncio.Lock()
        self.calls = 0

    async def reset(self, **kwargs) -> str:
        await asyncio.sleep(0)
        self.calls = 0
        return "The vault has two doors."

    async def read(self, door: int) -> str:
        """
        Read what stands on a door.

        Args:
            door: Number of the door, from 1.
        """
        async with self.lock:
            await asyncio.sleep(0.001)
            self.calls += 1
            if door not in (1, 2):
                raise ValueError(f"there is no door {door}")
            return "gold" if door == 2 else "lead"

    async def read_both(self) -> str:
        """Read both doors."""
        return f"{await self.read(1)}, {await self.read(2)}"

    async def get_reward(self) -> float:
        return float(self.calls)


def make_counter():
    """A factory instead of a class, as `environment_factory` allows."""
    return Counter()
