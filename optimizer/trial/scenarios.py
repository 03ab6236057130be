"""Scenarios: the frozen training situations in which patches are tried, as data.

*Deciding* scenarios are used by trials. *Reserve* scenarios are never used by a trial that decides, only by benchmarks
that ask whether evolution helped at all; `check_disjoint` holds the two apart. A scenario's budget is frozen where the
plain base of its model class ends between .35 and .75 success: lower, nothing is learnt; higher, gains are clipped.
In `house_rules` weights alone cannot know a new house (one guess in five is right), so its scenarios keep to two fixed
houses; the plain base learns little there in any affordable budget, and the shipped default ends inside the range.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from optimizer.trial.plan import TrialPlan
from skill_bank.policy import describe_condition, matches


class ScenarioError(ValueError):
    """No scenario fits: says which there are."""


class Scenario(BaseModel):
    """One training situation. Its seed comes from the pair."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    env: str
    difficulty: str = "mixed"
    model: str = "tiny"
    params: int
    """Parameters of the model, for the scope of patches."""
    problems: int = 64
    episodes: int = 512
    """Training episodes of an arm."""
    reserve: bool = False
    settings: dict[str, Any] = Field(default_factory=dict)
    """Further values of the configuration that belong to the situation (own data, columns, reward, …)."""

    @property
    def situation(self) -> tuple[str, str, str, int, str]:
        """What must not occur in both a deciding and a reserve scenario."""
        return self.env, self.difficulty, self.model, self.problems, repr(sorted(self.settings.items()))

    def context(self) -> dict[str, Any]:
        """The policy context, as far as the scenario knows it."""
        return {"params": self.params, "model": self.model, "env": self.env, "difficulty": self.difficulty}

    def overrides(self, seed: int, plan: TrialPlan) -> dict[str, Any]:
        """Values of the configuration that the trial fixes in both arms; everything else is policy.

        The episodes bound the arm alone: a policy that sets epochs, steps or a goal would make arms unequal. Validation
        and the test before training cost episodes and decide nothing here.
        """
        return {
            **self.settings,
            "env": self.env,
            "difficulty": self.difficulty,
            "model": self.model,
            "problems": self.problems,
            "seed": seed,
            "max_episodes": self.episodes,
            "epochs": None,
            "max_steps": None,
            "target_reward": None,
            "test_problems": plan.eval_tasks,
            "validate_every": 0,
            "skip_eval_before": True,
            "keep_episodes": False,
            "save_every": 0,
            "auto_stop": False,
            "mode": "auto",
            "threads": 1,
        }


TINY_PARAMS = 1_000_000
"""Order of the bundled model's size; every size class of the shipped policies that holds it holds `tiny`."""


FIXED_HOUSES: dict[str, Any] = {"env_args": {"houses": "fixed", "count": 2}}


def _family(
    env: str, difficulties: tuple[str, ...], *, problems: int, reserve: bool, settings: dict[str, Any] | None = None
) -> list[Scenario]:
    mark = "reserve-" if reserve else ""
    return [
        Scenario(
            name=f"{mark}{env.replace('_', '-')}-{difficulty}",
            env=env,
            difficulty=difficulty,
            params=TINY_PARAMS,
            problems=problems,
            reserve=reserve,
            settings=settings or {},
        )
        for difficulty in difficulties
    ]


SCENARIOS: tuple[Scenario, ...] = (
    *_family("calculator", ("mixed", "hard"), problems=64, reserve=False),
    *_family("calculator", ("mixed", "hard"), problems=96, reserve=True),
    *_family("lookup", ("mixed",), problems=64, reserve=False),
    *_family("lookup", ("mixed",), problems=96, reserve=True),
    *_family("house_rules", ("mixed",), problems=64, reserve=False, settings=FIXED_HOUSES),
    *_family("house_rules", ("mixed",), problems=96, reserve=True, settings=FIXED_HOUSES),
)


def check_disjoint(scenarios: Iterable[Scenario]) -> None:
    """Raises ScenarioError when a name occurs twice or a situation is both deciding and reserve."""
    seen: dict[str, Scenario] = {}
    kinds: dict[tuple[str, str, str, int, str], bool] = {}
    for scenario in scenarios:
        if scenario.name in seen:
            raise ScenarioError(f"two scenarios are called {scenario.name!r}: give each its own name")
        seen[scenario.name] = scenario
        if kinds.setdefault(scenario.situation, scenario.reserve) != scenario.reserve:
            raise ScenarioError(
                f"scenario {scenario.name!r} is used for deciding and kept in reserve at the same time: "
                "change its env, difficulty, model or problems"
            )


check_disjoint(SCENARIOS)


def deciding(
    scope: Mapping[str, Any] | None,
    own: Scenario | None = None,
    scenarios: Iterable[Scenario] = SCENARIOS,
) -> list[Scenario]:
    """The scenarios a patch with this scope is tried on: the shipped deciding ones inside it.

    `own` is the situation of the run the finding came from: it comes first (as the shipped scenario of that situation,
    where there is one), unless it is kept in reserve. Of the shipped ones only those of its model are used: a trial on
    another model says little about it. Raises ScenarioError where nothing lies inside the scope.
    """
    shipped = [one for one in scenarios if own is None or one.model == own.model]
    inside = [one for one in shipped if not one.reserve and matches(scope or None, one.context())]
    found = inside
    if own is not None and matches(scope or None, own.context()):
        same = [one for one in inside if one.situation == own.situation]
        kept = any(one.reserve and one.situation == own.situation for one in shipped)
        first = same or ([] if kept else [own])
        found = first + [one for one in inside if one not in same]
    if not found:
        names = ", ".join(scenario.name for scenario in SCENARIOS if not scenario.reserve)
        raise ScenarioError(
            f"no scenario lies inside the scope ({describe_condition(scope)}). "
            f"Deciding scenarios: {names}. Train once inside the scope, or widen it"
        )
    return found


_EXPLICIT = frozenset({"request", "set", "override", "config"})

_NOT_SITUATION = frozenset(
    {"env", "difficulty", "model", "problems", "seed", "epochs", "max_steps", "max_episodes", "target_reward", "mode"}
    | {"test_problems", "validation_problems", "validate_every", "skip_eval_before", "keep_episodes", "save_every"}
    | {"auto_stop", "threads", "schema_version"}
)
"""Fields that the scenario itself or the trial decides."""


def own_scenario(
    config: Mapping[str, Any],
    params: int,
    provenance: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    episodes: int = 512,
) -> Scenario:
    """The situation of a run, for trials of patches that its findings led to.

    What was asked for explicitly (own data, a prompt, a fixed value) belongs to it; what policy decided does not.
    """
    asked = {name for name, one in (provenance or {}).items() if one.get("source") in _EXPLICIT}
    settings = {name: config[name] for name in sorted(asked - _NOT_SITUATION) if name in config}
    label = str(config["env"]).split(":")[-1].replace("_", "-").lower()
    return Scenario(
        name=f"own-{label}-{config['difficulty']}",
        env=config["env"],
        difficulty=config["difficulty"],
        model=config["model"],
        params=params,
        problems=config["problems"],
        episodes=episodes,
        settings=settings,
    )
