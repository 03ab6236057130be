"""What the optimiser's records say about the optimiser: findings with patches, trials, events, n and numbers.

Only families that are analysed are looked at; those in reserve decide about the patches that follow.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from optimizer.ids import content_id
from optimizer.layers import Layer
from optimizer.meta.types import OptimizerPolicy, RecordedTrial
from optimizer.meta.work import Work
from optimizer.patch_store import PatchRecord, Stage
from optimizer.round_types import Round
from optimizer.trial.plan import QUICK
from optimizer.trial.statistics import rate
from optimizer.trial.types import Reason, TrialVerdict
from optimizer.types import EventEvidence, Finding, Metric

SIMILAR_FAILURES = 2
"""Failed trials of a lever in a row after which another one counts as wasted when it fails too."""

NEVER_PAYS = 3
"""Trials of a lever without one acceptance: at a true share of a half this happens once in eight."""

FEWEST = 2
"""Cases that make a pattern."""

NEAR = 2.0
"""Two values within this factor are the same attempt: trials do not tell them apart."""


@dataclass(frozen=True)
class Records:
    """What an analysis looks at."""

    trials: Sequence[RecordedTrial]
    """Of the families that are analysed, oldest first."""
    patches: Sequence[PatchRecord]
    rounds: Sequence[Round]
    work: Work
    policy: OptimizerPolicy
    """In force now."""


@dataclass(frozen=True)
class Move:
    """What a finding suggests: a policy key of `traj-optimize` and values for it, the likeliest first."""

    key: str
    values: tuple[int | str, ...]


def findings_of(records: Records) -> list[Finding]:
    """All findings, the most expensive pattern first."""
    detectors: tuple[Callable[[Records], Finding | None], ...] = (
        wasted_trials,
        levers_that_never_pay,
        early_stopping_errors,
        late_looks,
        screening_picks_wrong,
        repeated_rejects,
    )
    found = [one for detector in detectors if (one := detector(records)) is not None]
    return sorted(found, key=lambda one: -(one.model_extra or {}).get("episodes", 0))


def wasted_trials(records: Records) -> Finding | None:
    """Trials that failed although the same lever had failed in the same place before, again and again."""
    wasted: list[RecordedTrial] = []
    persisted = 0
    for series in _by_lever(records.trials).values():
        failures = 0
        for trial in series:
            if trial.decision.verdict is TrialVerdict.BETTER:
                persisted += failures >= SIMILAR_FAILURES
                failures = 0
            elif trial.rejected:
                if failures >= SIMILAR_FAILURES:
                    wasted.append(trial)
                failures += 1
    if len(wasted) < FEWEST:
        return None
    episodes = sum(one.episodes for one in wasted)
    n = len(records.trials)
    return _finding(
        records,
        "wasted_trials",
        f"{len(wasted)} of {n} trials failed although the {SIMILAR_FAILURES} or more before them of the same lever and "
        f"scope had failed too: {episodes:,} episodes; {persisted} were accepted after as many failures",
        wasted,
        [_share("wasted_share", len(wasted), n), Metric(name="accepted_after_failures", value=persisted, n=n)],
        _patience(records.policy, (SIMILAR_FAILURES, 1, 3)),
    )


def levers_that_never_pay(records: Records) -> Finding | None:
    """Levers with several trials in a place and none accepted."""
    series = {
        key: trials
        for key, trials in _by_lever(records.trials).items()
        if len(trials) >= NEVER_PAYS and all(one.decision.verdict is not TrialVerdict.BETTER for one in trials)
    }
    if not series:
        return None
    trials = [one for some in series.values() for one in some]
    worst = max(series.items(), key=lambda one: len(one[1]))
    bound = rate(0, len(worst[1])).high
    names = ", ".join(f"{lever} ({len(some)})" for (lever, _), some in series.items())
    return _finding(
        records,
        "levers_that_never_pay",
        f"none of {len(trials)} trials of these levers was accepted: {names}; up to {bound:.0%} of the trials "
        f"of {worst[0][0]} may still pay",
        trials,
        [Metric(name="accepted_share", value=0.0, n=len(trials)), Metric(name="upper_bound", value=bound)],
        _patience(records.policy, (NEVER_PAYS - 1, 1, NEVER_PAYS)),
    )


def early_stopping_errors(records: Records) -> Finding | None:
    """Verdicts that fresh pairs or later trials contradicted."""
    wrong: dict[str, list[RecordedTrial]] = {"better": [], "futile": [], "promising": []}
    demoted = {one.patch_id for one in records.patches if one.fresh is not None and one.fresh.get("demote")}
    checked = {one.patch_id for one in records.patches if one.fresh is not None}
    for index, trial in enumerate(records.trials):
        later = records.trials[index + 1 :]
        verdict, reason = trial.decision.verdict, trial.decision.reason
        if verdict is TrialVerdict.BETTER and trial.patch_id in demoted:
            wrong["better"].append(trial)
        elif reason is Reason.NO_WORTHWHILE_GAIN and _accepted_nearby(trial, later):
            wrong["futile"].append(trial)
        elif reason is Reason.PROMISING and any(one.patch_id == trial.patch_id and one.rejected for one in later):
            wrong["promising"].append(trial)
    trials = [one for some in wrong.values() for one in some]
    if len(trials) < FEWEST:
        return None
    quick = sum(one.plan.startswith(QUICK.name) for one in trials)
    move = Move("trial_plan.default", ("default",)) if quick * 2 > len(trials) else None
    counts = {name: len(some) for name, some in wrong.items()}
    return _finding(
        records,
        "early_stopping_errors",
        f"{len(trials)} verdicts were contradicted: {counts['better']} better by fresh pairs (of {len(checked)} looked "
        f"at again), {counts['futile']} futile by a later acceptance of nearly the same value, {counts['promising']} "
        f"promising by a later rejection; {quick} under plan quick",
        trials,
        [
            _share("contradicted_share", len(trials), len(records.trials)),
            *(Metric(name=f"{name}_contradicted", value=count) for name, count in counts.items()),
        ],
        _new(records.policy, move),
    )


def late_looks(records: Records) -> Finding | None:
    """Looks behind the quick plan's last one that decided nothing."""
    late = [one for one in records.trials if len(one.pairs) > QUICK.max_pairs]
    undecided = [one for one in late if one.decision.reason in (Reason.PROMISING, Reason.TOO_NOISY)]
    if len(undecided) < FEWEST or 2 * len(undecided) < len(late):
        return None
    spare = sum(2 * one.arm_episodes * (len(one.pairs) - QUICK.max_pairs) for one in undecided)
    return _finding(
        records,
        "late_looks_decide_nothing",
        f"{len(undecided)} of {len(late)} trials with more than {QUICK.max_pairs} pairs ended without a decision: "
        f"{spare:,} episodes behind that look",
        undecided,
        [_share("undecided_share", len(undecided), len(late))],
        _new(records.policy, Move("trial_plan.default", (QUICK.name,))),
        episodes=spare,
    )


def screening_picks_wrong(records: Records) -> Finding | None:
    """Winners of a screening that their trial rejected."""
    verdicts = {one.patch_id: one for one in records.trials}
    screened = [verdicts[one.chosen] for one in records.rounds if one.screening and one.chosen in verdicts]
    wrong = [one for one in screened if one.rejected]
    if len(wrong) < FEWEST or 2 * len(wrong) < len(screened):
        return None
    now = records.policy.screening_pairs
    move = Move("screening_pairs", tuple(dict.fromkeys(one for one in (min(2 * now, 8), 6) if one > now)))
    return _finding(
        records,
        "screening_picks_wrong",
        f"{len(wrong)} of {len(screened)} winners of a screening of {now} pairs were rejected in their trial",
        wrong,
        [_share("rejected_winners", len(wrong), len(screened))],
        _new(records.policy, move if move.values else Move("max_patches_per_round", (1,))),
    )


def repeated_rejects(records: Records) -> Finding | None:
    """Proposals that the rejected memory refused, and better patches that a person refused. Neither costs trials, and
    no policy value mends it: the section of `traj-optimize` on proposing does."""
    refused = [
        one
        for one in records.work.calls
        if one.failed and one.tool.endswith("propose_patch") and "rejected before" in (one.reason or "")
    ]
    noted = [one for one in records.rounds if one.note is not None and "was rejected as" in one.note]
    by_person = [one for one in records.patches if one.verdict == "better" and one.stage is Stage.REJECTED]
    total = len(refused) + len(noted) + len(by_person)
    if total < FEWEST:
        return None
    proposals = sum(one.tool.endswith("propose_patch") for one in records.work.calls)
    names = [one.patch_id for one in by_person] + [name for one in refused for name in sorted(one.names)]
    return _told(
        "repeated_rejects",
        [total, *names],
        f"{len(refused)} of {proposals} proposals were refused because the same was rejected before, "
        f"{len(noted)} rounds found only rejected values, a person refused {len(by_person)} patches that were better",
        [one.evidence for one in refused] + records.work.naming(one.patch_id for one in by_person),
        [
            _share("refused_share", len(refused), max(proposals, len(refused))),
            Metric(name="rounds", value=len(noted), n=len(records.rounds)),
            Metric(name="refused_by_person", value=len(by_person), n=len(records.patches)),
        ],
        confidence=0.5,
        patches=sorted(set(names)),
        rounds=[one.round for one in noted],
    )


def _finding(
    records: Records,
    kind: str,
    what: str,
    trials: Sequence[RecordedTrial],
    metrics: list[Metric],
    move: Move | None,
    episodes: int | None = None,
) -> Finding:
    patches = list(dict.fromkeys(one.patch_id for one in trials))
    ids = [one.trial_id for one in trials]
    spent = sum(one.episodes for one in trials) if episodes is None else episodes
    return _told(
        kind,
        ids,
        what,
        records.work.naming([*patches, *ids]),
        [*metrics, Metric(name="episodes", value=spent, n=len(trials))],
        confidence=min(0.5 + 0.05 * len(trials), 0.95),
        patches=patches,
        trials=ids,
        move=move,
        episodes=spent,
    )


def _told(
    kind: str,
    rests_on: Sequence[object],
    what: str,
    events: Sequence[EventEvidence],
    metrics: list[Metric],
    *,
    confidence: float,
    patches: Sequence[str] = (),
    trials: Sequence[str] = (),
    rounds: Sequence[int] = (),
    move: Move | None = None,
    episodes: int = 0,
) -> Finding:
    """The finding, with what only findings about the optimiser have as further fields."""
    return Finding.model_validate(
        {
            "id": f"finding-{content_id('meta', kind, *rests_on, length=12)}",
            "kind": kind,
            "what": what,
            "evidence": list(events),
            "metrics": metrics,
            "confidence": confidence,
            "layer": Layer.TRAJ,
            "patches": list(patches),
            "trials": list(trials),
            "rounds": list(rounds),
            "move": None if move is None else {"key": move.key, "values": list(move.values)},
            "episodes": episodes,
        }
    )


def _by_lever(trials: Iterable[RecordedTrial]) -> dict[tuple[str, str], list[RecordedTrial]]:
    found: dict[tuple[str, str], list[RecordedTrial]] = defaultdict(list)
    for one in trials:
        if one.lever is not None:
            found[one.lever, one.place].append(one)
    return found


def _accepted_nearby(trial: RecordedTrial, later: Sequence[RecordedTrial]) -> bool:
    return any(
        one.decision.verdict is TrialVerdict.BETTER
        and (one.lever, one.place) == (trial.lever, trial.place)
        and (one.patch_id == trial.patch_id or _near(one.value, trial.value))
        for one in later
    )


def _near(first: float | None, second: float | None) -> bool:
    if first is None or second is None or first <= 0 or second <= 0:
        return False
    return max(first, second) / min(first, second) <= NEAR


def _share(name: str, count: int, n: int) -> Metric:
    share = count / n if n else 0.0
    error = math.sqrt(share * (1 - share) / n) if n else None
    return Metric(name=name, value=share, n=n, standard_error=error)


def _patience(policy: OptimizerPolicy, values: tuple[int, ...]) -> Move | None:
    now = policy.lever_patience
    return _new(policy, Move("lever_patience", tuple(one for one in values if now is None or one < now)))


def _new(policy: OptimizerPolicy, move: Move | None) -> Move | None:
    """The move without the value that is in force; None where nothing is left of it."""
    if move is None:
        return None
    now = {
        "trial_plan.default": policy.plan,
        "screening_pairs": policy.screening_pairs,
        "max_patches_per_round": policy.candidates,
        "lever_patience": policy.lever_patience,
    }[move.key]
    values = tuple(one for one in move.values if one != now)
    return Move(move.key, values) if values else None
