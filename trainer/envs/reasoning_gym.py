"""`reasoning_gym`: problems of the package of that name (extra `reasoning-gym`), scored by its own verifiers.

`env_args`:
- `dataset`: a name such as chain_sum, or a list of names, one of which is drawn for each problem;
- `config`: arguments of the dataset (min_terms, …);
- `partial: true`: the verifier's score between 0 and 1 is the reward; without it the reward is 1 for a full score.

`difficulty` simple and hard are the first and the third level of the dataset's own curriculum, mixed its defaults.
A problem is stored as dataset, arguments and index, and generated again when an episode begins.
"""

import dataclasses
import difflib
import functools
import json
import random
from collections.abc import Sequence
from typing import Any

from trainer.envs.arithmetic import evaluate, show
from trainer.envs.base import EnvironmentFault, Row, Split, draw

SIZE = 100_000
"""Virtual problems of a dataset; only those that are asked for are generated."""
LEVELS = {"simple": 0, "hard": 2}
FULL_SCORE = 1 - 1e-6


def _library() -> Any:
    """The package. Raises EnvironmentFault where it is not installed."""
    try:
        import reasoning_gym
        import reasoning_gym.factory
    except ImportError as error:
        raise EnvironmentFault(
            f"environment reasoning_gym: {error}. It needs a package: pip install 'mcp-evo[reasoning-gym]'."
        ) from error
    return reasoning_gym


@functools.lru_cache(maxsize=64)
def _dataset(name: str, config: str) -> Any:
    """A dataset; `config` is its arguments as JSON. Raises ValueError in words."""
    library = _library()
    known = library.factory.DATASETS
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"There are {len(known)}: {', '.join(sorted(known))}."
        raise ValueError(f"reasoning_gym has no dataset {name!r}. {hint}")
    arguments = json.loads(config)
    try:
        try:
            return library.create_dataset(name, **{"size": SIZE, **arguments}, seed=0)
        except ValueError:  # some datasets bound their size
            return library.create_dataset(name, **arguments, seed=0)
    except (TypeError, ValueError, AssertionError) as error:
        allowed = [f.name for f in dataclasses.fields(known[name][1]) if f.name not in ("seed", "size")]
        raise ValueError(f"reasoning_gym: {name} with {config}: {error}. Arguments: {', '.join(allowed)}.") from error


@functools.lru_cache(maxsize=512)
def _entry(name: str, config: str, index: int) -> Any:
    """One problem: {question, answer, metadata}."""
    return _dataset(name, config)[index]


def _arguments(name: str, difficulty: str, config: dict[str, Any]) -> str:
    """The arguments of a dataset at a difficulty, as JSON."""
    if difficulty not in LEVELS:
        return json.dumps(config, sort_keys=True)
    _dataset(name, "{}")  # an unknown name is said to be one
    factory = _library().factory
    if not factory.has_curriculum(name):
        raise ValueError(f"reasoning_gym: {name} has no curriculum; use difficulty=mixed, its defaults, and config.")
    curriculum = factory.create_curriculum(name)
    for attribute in curriculum.attributes.values():
        curriculum.set_attr_level(attribute.name, min(LEVELS[difficulty], len(attribute.levels) - 1))
    level = dataclasses.asdict(curriculum.generate_configuration())
    kept = {key: value for key, value in level.items() if key not in ("seed", "size")}
    return json.dumps({**kept, **config}, sort_keys=True, default=str)


class ReasoningGym:
    """One problem of reasoning-gym."""

    system_prompt = "Solve the problem. Submit the final answer with finish, in the form that the problem asks for."

    def __init__(self) -> None:
        self._problem: tuple[str, str, int] = ("", "{}", 0)
        self._partial = False
        self._reward = 0.0
        self.finished = False

    @classmethod
    def tasks(
        cls,
        split: Split,
        n: int,
        seed: int,
        difficulty: str = "mixed",
        dataset: str | Sequence[str] = (),
        config: dict[str, Any] | None = None,
        partial: bool = False,
        **env_args: Any,
    ) -> list[Row]:
        """Rows with `prompt`, `dataset`, `config`, `index`; no question stands in two splits."""
        names = [dataset] if isinstance(dataset, str) else list(dataset)
        if not names or env_args:
            raise ValueError(
                "reasoning_gym takes env_args dataset (a name or a list of names, for instance chain_sum), config and "
                f"partial; got {', '.join(sorted(env_args)) or 'no dataset'}."
            )
        arguments = {name: _arguments(name, difficulty, config or {}) for name in names}

        def make(rng: random.Random) -> tuple[str, Row]:
            name = rng.choice(names)
            index = rng.randrange(len(_dataset(name, arguments[name])))
            question = str(_entry(name, arguments[name], index)["question"])
            return question, {
                "prompt": question,
                "dataset": name,
                "config": arguments[name],
                "index": index,
                "partial": partial,
            }

        return draw(make, Split(split), n, seed, scope=f"reasoning_gym/{'+'.join(names)}/{difficulty}")

    def reset(self, dataset: str = "", config: str = "{}", index: int = 0, partial: bool = False, **_: Any) -> None:
        """Takes the problem by its dataset, arguments and index."""
        self._problem, self._partial = (dataset, config, index), partial
        self._reward, self.finished = 0.0, False
        _entry(*self._problem)

    def calculate(self, expression: str) -> str:
        """
        Evaluate an arithmetic expression.

        Args:
            expression: The expression, e.g. 3*(4+5).
        """
        return show(evaluate(expression))

    def finish(self, answer: str) -> str:
        """
        Submit the final answer.

        Args:
            answer: The final answer, in the form that the problem asks for.
        """
        score = self._score(str(answer))
        self._reward = score if self._partial else float(score >= FULL_SCORE)
        self.finished = True
        return "done"

    def _score(self, answer: str) -> float:
        name, config, index = self._problem
        try:
            return float(_dataset(name, config).score_answer(answer, _entry(name, config, index)))
        except Exception:  # some verifiers raise on answers that they cannot read: such an answer is wrong
            return 0.0

    def get_reward(self) -> float:
        """The score of the submitted answer, 0 without one."""
        return self._reward
