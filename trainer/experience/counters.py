"""What the counters of a record say: its uplift with an interval, and the status that the evidence asks for. Pure.

Uplift is the success rate of episodes that had the record in their prompt minus that of episodes of the same tasks for
which it was found and withheld (the control share). The interval is Newcombe's for two independent rates
(`statistics.difference_interval`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.experience.records import Counters, ExperienceRecord, Status, Use
from trainer.runs.statistics import Z95, difference_interval

Z90_ONE_SIDED = 1.2815515655446004
"""One-sided 90 % quantile of the normal distribution."""


@dataclass(frozen=True)
class Uplift:
    """Guided minus control."""

    value: float
    low: float
    high: float
    guided: int
    control: int


def proven(record: ExperienceRecord) -> float:
    """What the record brings for sure: the one-sided 90 % lower bound of its uplift; 0 where nothing was measured."""
    found = uplift(record.counters, Z90_ONE_SIDED)
    return 0.0 if found is None else found.low


@dataclass(frozen=True)
class LifecyclePolicy:
    """When evidence changes a status."""

    min_guided: int = 4
    """Episodes with the record before anything is decided."""
    min_control: int = 4
    z_promote: float = Z90_ONE_SIDED
    """A record leaves quarantine when the one-sided 90 % lower bound of its uplift is above 0: a record that does no
    good passes in one of ten trials at most, and what passed goes on being measured."""
    z_quarantine: float = Z90_ONE_SIDED
    """An active record goes into quarantine when the one-sided 90 % upper bound is below 0."""
    z_retire: float = Z95
    """A record is retired when the one-sided 97.5 % upper bound is below 0."""
    useless_after: int = 60
    """Guided episodes after which a record has to have shown something …"""
    useless_below: float = 0.05
    """… that is, the 97.5 % upper bound of the uplift must not be below this."""


DEFAULT_LIFECYCLE = LifecyclePolicy()


@dataclass(frozen=True)
class Decision:
    """What the evidence asks for."""

    status: Status
    reason: str


def uplift(counters: Counters, z: float = Z95) -> Uplift | None:
    """The uplift, or None where one of the two shares is empty."""
    guided, control = counters.won + counters.lost, counters.control_won + counters.control_lost
    if guided == 0 or control == 0:
        return None
    low, high = difference_interval(counters.control_won, control, counters.won, guided, z)
    return Uplift(counters.won / guided - counters.control_won / control, low, high, guided, control)


def decide(record: ExperienceRecord, policy: LifecyclePolicy = DEFAULT_LIFECYCLE) -> Decision | None:
    """The status that the counters ask for where it differs from the record's; None: it stays."""
    counters = record.counters
    wide = uplift(counters, policy.z_retire)
    if record.status is Status.RETIRED or wide is None:
        return None
    if wide.guided < policy.min_guided or wide.control < policy.min_control:
        return None
    told = f"uplift {wide.value:+.2f} over {wide.guided} guided and {wide.control} control episodes"
    if wide.high < 0:
        return Decision(Status.RETIRED, f"harmful: {told}")
    if wide.guided >= policy.useless_after and wide.high < policy.useless_below:
        return Decision(Status.RETIRED, f"useless: {told}")
    narrow = uplift(counters, policy.z_quarantine)
    assert narrow is not None
    if record.status is Status.ACTIVE and narrow.high < 0:
        return Decision(Status.QUARANTINED, f"probably harmful: {told}")
    promote = uplift(counters, policy.z_promote)
    assert promote is not None
    if record.status is Status.QUARANTINED and promote.low > 0:
        return Decision(Status.ACTIVE, f"helped: {told}")
    return None


def tally(uses: Sequence[Use]) -> dict[str, Counters]:
    """Counters to add, by record."""
    found: dict[str, Counters] = {}
    for use in uses:
        found[use.record_id] = found.get(use.record_id, Counters()) + _of(use)
    return found


def _of(use: Use) -> Counters:
    won, lost = int(use.won is True), int(use.won is False)
    if use.control:
        return Counters(control_won=won, control_lost=lost)
    return Counters(used=1, won=won, lost=lost)
