"""Recorded trials of a workspace, and the opportunities that a replay is made of.

Families take turns between analysis and reserve in the order in which their first trial began: the first family is
analysed, the second kept in reserve, and so on. That order never changes as trials are added, so a family in reserve
never taught the proposer anything. Trials over several environments at once are analysed.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from optimizer.home import Home
from optimizer.meta.levers import lever_of, place_of, value_of
from optimizer.meta.types import Candidate, Opportunity, RecordedTrial
from optimizer.patch_store import PatchError, PatchRecord
from optimizer.round_store import RoundStore
from optimizer.trial.arms import TrialError
from optimizer.trial.folder import TrialFolder
from optimizer.trial.screen import ScreenRow
from optimizer.trial.types import Pair, Reason, TrialVerdict
from skill_bank.files import read_json_lines

_SEVERAL = "+"
"""Between the environments of a family of several."""

REJECTING = frozenset({Reason.NO_WORTHWHILE_GAIN, Reason.VETOED, Reason.ARMS_IDENTICAL})


def recorded_trials(home: Home) -> list[RecordedTrial]:
    """Every trial of paired training with a verdict and at least two pairs, oldest first; damaged ones are left out."""
    found: list[RecordedTrial] = []
    if not home.trials.is_dir():
        return found
    for path in sorted(home.trials.iterdir()):
        folder = TrialFolder(path)
        if folder.exists:
            one = _recorded(home, folder)
            if one is not None:
                found.append(one)
    return sorted(found, key=lambda one: (one.created_at, one.trial_id))


def _recorded(home: Home, folder: TrialFolder) -> RecordedTrial | None:
    try:
        spec = folder.spec()
        decision = folder.decision()
        if spec.kind != "training" or decision is None or not spec.scenarios:
            return None
        pairs = folder.pairs(spec)
    except (TrialError, ValueError):
        return None
    if len(pairs) < 2:
        return None
    record = _record(home, spec.patch_id)
    return RecordedTrial(
        trial_id=spec.trial_id,
        patch_id=spec.patch_id,
        attempt=spec.attempt,
        created_at=spec.created_at,
        round=None if record is None else record.round,
        plan=spec.plan.name,
        family=_SEVERAL.join(sorted({one.env for one in spec.scenarios})),
        lever=None if record is None else lever_of(record),
        place=place_of(spec.scope, spec.profile),
        value=None if record is None else value_of(record),
        arm_episodes=round(spec.max_episodes / (2 * spec.plan.max_pairs)),
        decision=decision,
        rejected=decision.verdict is TrialVerdict.WORSE or decision.reason in REJECTING,
        pairs=tuple(pairs),
        fresh=_fresh(home, spec.patch_id),
    )


def _record(home: Home, patch_id: str) -> PatchRecord | None:
    try:
        return home.patches.read(patch_id)
    except PatchError:
        return None


def _fresh(home: Home, patch_id: str) -> tuple[Pair, ...]:
    """Pairs of the fresh look at a promoted patch; none where there was no look."""
    rows = screening_rows(home.trials / f"fresh-{patch_id}"[:64])
    return pairs_of(rows, patch_id)


def screening_rows(folder: Path) -> tuple[ScreenRow, ...]:
    """Rows of a screening or a fresh look; lines that are none are passed over."""
    rows = []
    for _, row in read_json_lines(folder / "screening.jsonl").rows:
        try:
            rows.append(ScreenRow.model_validate(row))
        except ValidationError:
            continue
    return tuple(rows)


def pairs_of(rows: Sequence[ScreenRow], patch_id: str) -> tuple[Pair, ...]:
    """The rows as pairs of the shared base arm and one candidate."""
    return tuple(
        Pair(index=row.index, scenario=row.scenario, seed=row.seed, base=row.base, patched=row.candidates[patch_id])
        for row in rows
        if patch_id in row.candidates
    )


def opportunities(home: Home, trials: Iterable[RecordedTrial]) -> list[Opportunity]:
    """One for each patch that was tried, oldest first. A candidate's pairs are those of all its trials and of the fresh
    look (of a screening's other candidates, their screening pairs: nothing else is known of them)."""
    by_patch: dict[str, list[RecordedTrial]] = {}
    for one in trials:
        by_patch.setdefault(one.patch_id, []).append(one)
    screened = {
        one.chosen: one for one in RoundStore(home.root).all() if one.screening is not None and one.chosen is not None
    }
    found: list[Opportunity] = []
    for patch_id, mine in by_patch.items():
        first = mine[0]
        own = Candidate(patch_id=patch_id, pairs=(*(pair for one in mine for pair in one.pairs), *first.fresh))
        candidates: tuple[Candidate, ...] = (own,)
        rows: tuple[ScreenRow, ...] = ()
        current = screened.get(patch_id)
        if current is not None:
            rows = screening_rows(home.trials / f"screening-round-{current.round:06d}")
            others = {one: pairs_of(rows, one) for one in current.candidates if one != patch_id}
            candidates = tuple(
                own if one == patch_id else Candidate(patch_id=one, pairs=others[one])
                for one in current.candidates
                if one == patch_id or others[one]
            )
        found.append(
            Opportunity(
                id=patch_id,
                created_at=first.created_at,
                family=first.family,
                lever=first.lever,
                place=first.place,
                arm_episodes=first.arm_episodes,
                candidates=candidates,
                screening=rows if len(candidates) > 1 else (),
            )
        )
    return sorted(found, key=lambda one: (one.created_at, one.id))


def split_families(trials: Iterable[RecordedTrial]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(families that are analysed, families kept in reserve), from trials oldest first."""
    families = list(dict.fromkeys(one.family for one in trials))
    single = [one for one in families if _SEVERAL not in one]
    reserve = tuple(single[1::2])
    return tuple(one for one in families if one not in reserve), reserve
