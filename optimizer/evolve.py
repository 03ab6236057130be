"""Evolution: round after round, each training with what the ones before have promoted.

`evolve` starts one, `resume` takes one up again; both return the output document. It stops early where nothing is left
to try, and where a person has to decide first.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from optimizer.home import Home
from optimizer.ids import check_id, stamped_id
from optimizer.meta.frozen import policy_to_keep
from optimizer.round_store import RoundStore
from optimizer.round_types import Approver, EvolveRequest, Round, RoundError, RoundState, Watcher, patch_outcome
from optimizer.rounds import RoundRunner, Runners
from optimizer.spent import spent
from optimizer.trial.folder import pair_seed
from optimizer.trial.pooled import pooled_arms
from optimizer.trial.run import never
from optimizer.tryout import CONFIG_SKILL
from skill_bank.types import BankError, Problem
from trainer.runs.errors import RunError
from trainer.runs.launch import LocalLauncher
from trainer.runs.registry import find_run


def new_request(
    home: Home,
    text: str,
    rounds: int,
    profile: str | None = None,
    *,
    evolution: str | None = None,
    seed: int | None = None,
    **fields: Any,
) -> EvolveRequest:
    """The request of a new evolution, checked. Raises BankError for a profile that the configuring skill lacks."""
    profiles = home.bank.source(CONFIG_SKILL).manifest.profiles
    if profile is not None and profile not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        missing = f"there is no profile '{profile}'"
        raise BankError([Problem(CONFIG_SKILL, 0, missing, f"There are: {known}. Leave it out for the default")])
    return EvolveRequest(
        evolution=stamped_id("evolve", text) if evolution is None else check_id(evolution, "evolution"),
        request=text,
        rounds=rounds,
        profile=profile,
        seed=secrets.randbelow(2**31) if seed is None else seed,
        **{"folder": str(Path.cwd()), **fields},
    )


def evolve(
    home: Home,
    request: EvolveRequest,
    approver: Approver,
    watch: Watcher,
    *,
    launcher: LocalLauncher | None = None,
    runners: Runners = pooled_arms,
    cancelled: Callable[[], bool] = never,
) -> dict[str, Any]:
    """Runs the rounds of a request, new or taken up again, and returns the output document.

    Raises ConfigError for a request that cannot be trained (before anything is written), RoundError, RunError,
    TrialError, TrialCancelled and KeyboardInterrupt; whatever was complete stays, and calling again goes on there.
    """
    runner = RoundRunner(home, request, approver, watch, launcher=launcher, runners=runners, cancelled=cancelled)
    runner.training.resolved()
    store = RoundStore(home.root)
    store.write_request(request)
    for position in range(1, request.rounds + 1):
        current = store.create(
            request.evolution,
            position,
            request=request.request,
            profile=request.profile,
            run_id=f"{request.evolution}-r{position}"[:64],
            trial_seed=pair_seed(request.seed, "round", position),
            **policy_to_keep(home),
        )
        if current.state is not RoundState.CLOSED:
            current = runner.run(current)
        if current.state is not RoundState.CLOSED or stops(current):
            break
        if spent(home, store.of(request.evolution)).over(request) is not None:
            break
    return document(home, request.evolution)


def resume(
    home: Home,
    evolution: str | None,
    approver: Approver,
    watch: Watcher,
    *,
    launcher: LocalLauncher | None = None,
    runners: Runners = pooled_arms,
    cancelled: Callable[[], bool] = never,
) -> dict[str, Any]:
    """Takes an evolution up again (None: the latest one). Raises RoundError where there is none."""
    store = RoundStore(home.root)
    if evolution is None:
        known = store.evolutions()
        if not known:
            raise RoundError("there is nothing to take up: start with `mcp-evo evolve`")
        evolution = known[-1]
    request = store.read_request(evolution)
    return evolve(home, request, approver, watch, launcher=launcher, runners=runners, cancelled=cancelled)


def begin_round(home: Home, request: EvolveRequest, *, evolution: str | None = None, agent: bool = False) -> Round:
    """The next round of a semi-automatic evolution, made and not yet trained: a new evolution, or the next round of
    `evolution`, whose request it keeps. With `agent` its run is started by a training agent of its own.

    Raises RoundError while another round of that evolution is open.
    """
    store = RoundStore(home.root)
    position = 1
    if evolution is not None:
        earlier = store.of(check_id(evolution, "evolution"))
        request = store.read_request(evolution)
        if earlier and earlier[-1].state is not RoundState.CLOSED:
            raise RoundError(
                f"round {earlier[-1].round} of {evolution} is {earlier[-1].state}: "
                f"close it first with `mcp-evo rounds optimize {earlier[-1].round}`"
            )
        position = len(earlier) + 1
        request = request.model_copy(update={"rounds": position, "final_trial": True})
    store.write_request(request)
    return store.create(
        request.evolution,
        position,
        request=request.request,
        profile=request.profile,
        run_id=f"{request.evolution}-r{position}"[:64],
        trial_seed=pair_seed(request.seed, "round", position),
        agent=agent,
        **policy_to_keep(home),
    )


def go_on(
    home: Home,
    number: int,
    until: RoundState,
    approver: Approver,
    watch: Watcher,
    *,
    launcher: LocalLauncher | None = None,
    runners: Runners = pooled_arms,
    cancelled: Callable[[], bool] = never,
) -> Round:
    """Takes one round on, as far as `until`. Raises what `evolve` raises."""
    store = RoundStore(home.root)
    current = store.read(number)
    if current.state is RoundState.CLOSED:
        return current
    request = store.read_request(current.evolution)
    runner = RoundRunner(home, request, approver, watch, launcher=launcher, runners=runners, cancelled=cancelled)
    return runner.run(current, until)


def stops(current: Round) -> bool:
    """Whether the evolution ends with this round: it had nothing to propose, so another would repeat it."""
    return current.state is RoundState.CLOSED and not current.candidates


def document(home: Home, evolution: str) -> dict[str, Any]:
    """The output document of an evolution: its rounds, with runs, evaluations and patches."""
    store = RoundStore(home.root)
    rounds = store.of(evolution)
    if not rounds:
        raise RoundError(f"there is no evolution {evolution!r}: start one with `mcp-evo evolve`")
    request = store.read_request(evolution)
    last = rounds[-1]
    cost = spent(home, rounds)
    stopped = None
    if len(rounds) < request.rounds and last.state is RoundState.CLOSED:
        stopped = last.note if stops(last) else cost.over(request)
    return {
        "spent": {"episodes": cost.episodes, "minutes": round(cost.seconds / 60, 2)},
        "evolution": evolution,
        "rounds": [round_document(home, one) for one in rounds],
        "stopped": stopped,
        "awaiting": last.chosen if last.state is RoundState.AWAITING_APPROVAL else None,
    }


def round_document(home: Home, current: Round) -> dict[str, Any]:
    """One round for reports and `--json`."""
    return {
        "round": current.round,
        "state": str(current.state),
        "skill_version": current.skill_versions.get(CONFIG_SKILL),
        "run_id": current.run_id,
        "eval": _evals(home, current.run_id),
        "checks": current.checks,
        "findings": current.findings,
        "lever": current.lever,
        "patch_id": current.promoted,
        "verdict": current.verdict,
        "version_after": current.version_after,
        "patches": current.outcome or [patch_outcome(home.patches.read(one)) for one in current.candidates],
        "note": current.note,
    }


def _evals(home: Home, run_id: str) -> dict[str, Any]:
    try:
        evals = find_run(home.workspace, run_id).document.eval
    except RunError:  # the round was killed before its run began
        evals = {}
    return {name: evals[name].model_dump(mode="json") if name in evals else None for name in ("before", "after")}
