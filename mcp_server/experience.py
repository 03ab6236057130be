"""Experience pools as commands and tools use them: opened with the workspace's redaction, guarded by its runs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from optimizer.redact import rules_of
from trainer.experience.config import open_pool, settings_of
from trainer.experience.counters import uplift
from trainer.experience.distil_endpoint import Pair, ask_endpoint, pairs_of
from trainer.experience.from_run import RunAttempts, attempts_of, distil_run, evaluation_problems
from trainer.experience.leaks import LeakError
from trainer.experience.pool import Added, ExperiencePool, pool_path
from trainer.experience.problems import ExperienceError
from trainer.experience.records import Evidence, ExperienceRecord, Hit, Status
from trainer.runs.errors import RunError
from trainer.runs.registry import find_run, list_runs
from trainer.runs.rundir import RunDirectory
from trainer.runs.workspace import Workspace

SUCCESS = 0.5
"""Reward from which an attempt has won, where nobody says otherwise."""
GUARDING_RUNS = 8
"""Newest runs whose evaluation problems guard a pool."""
MAX_NOTICES = 5


@dataclass(frozen=True)
class Lessons:
    """What distilling gave."""

    pool: str
    run_id: str
    by: str
    attempts: int
    added: list[Added]
    dropped: dict[str, int]
    """Attempts that gave no lesson, and lessons that were refused, by reason."""
    guarded: int
    notices: list[str]


def opened(workspace: Workspace, name: str, *, create: bool = False) -> ExperiencePool:
    """A pool of the workspace. Raises ExperienceError, PoolError, WorkspaceError."""
    return open_pool(workspace, name, create=create, redact=rules_of(workspace.root).redact_text)


def guarded(pool: ExperiencePool, workspace: Workspace) -> list[str]:
    """Registers the evaluation problems of the newest runs that are not yet registered; returns notices."""
    notices: list[str] = []
    for run in list_runs(workspace)[:GUARDING_RUNS]:
        key = f"guarded:{run.directory.run_id}"
        if pool.store.meta(key) is not None:
            continue
        try:
            found, told = evaluation_problems(run.directory.read_config(), run.directory)
        except LeakError as error:
            found, told = [], [str(error)]
        except RunError:
            continue  # a run that cannot be read evaluates nothing
        retired = pool.protect(found)
        if retired:
            told = [*told, f"{len(retired)} records hold evaluation tasks of {run.directory.run_id}: retired"]
        if found:
            pool.store.set_meta(key, str(len(found)))
        notices += told
    return list(dict.fromkeys(notices))[:MAX_NOTICES]


def add_record(workspace: Workspace, name: str, record: ExperienceRecord, *, create: bool = True) -> Added:
    """Adds a record to a pool, which the newest runs guard. Raises ExperienceError, PoolError."""
    with opened(workspace, name, create=create) as pool:
        guarded(pool, workspace)
        return pool.add(record)


def found_in(workspace: Workspace, name: str, query: str, k: int, statuses: Sequence[Status]) -> tuple[Hit, ...]:
    """The best records of a pool; none where there is no such pool. Raises ExperienceError, PoolError."""
    if not pool_path(workspace.root, name).exists():
        return ()
    with opened(workspace, name) as pool:
        return pool.search(query, k, statuses=statuses)


def run_of(workspace: Workspace, run_id: str | None) -> RunDirectory:
    """The run, or the latest. Raises RunError."""
    return find_run(workspace, run_id).directory


def distilled_by_rules(workspace: Workspace, name: str, directory: RunDirectory, limit: int) -> Lessons:
    """Lessons by rule, added in quarantine. Raises ExperienceError, PoolError, RunError."""
    with opened(workspace, name, create=True) as pool:
        guarded(pool, workspace)
        found = distil_run(pool, directory, limit=limit)
    dropped = {reason.value: count for reason, count in found.distilled.dropped.items()}
    return Lessons(
        name, directory.run_id, "rules", found.distilled.attempts, found.added, dropped, found.guarded, found.notices
    )


def pairs_for(workspace: Workspace, name: str, directory: RunDirectory, limit: int) -> tuple[RunAttempts, list[Pair]]:
    """Pairs of a run for an agent, whose lessons the run's problems will guard against. Raises ExperienceError."""
    attempts = attempts_of(directory)
    with opened(workspace, name, create=True) as pool:
        guarded(pool, workspace)
        pool.protect(attempts.guards)
    return attempts, pairs_of(attempts.trajectories, SUCCESS, limit, rules_of(workspace.root).redact_text)


def distilled_by_endpoint(workspace: Workspace, name: str, directory: RunDirectory, limit: int) -> Lessons:
    """Lessons that the configured service writes about pairs. Raises ExperienceError, PoolError, RunError."""
    settings = settings_of(workspace).endpoint
    if settings is None or not settings.model:
        raise ExperienceError(
            f"no service is configured: set experience.endpoint with base_url and model in {workspace.config_path}, or "
            "distil by rules or by agent"
        )
    attempts, pairs = pairs_for(workspace, name, directory, limit)
    evidence = tuple(Evidence(directory.run_id, place) for pair in pairs for place in pair.places)[:8]
    written = ask_endpoint(
        pairs,
        base_url=settings.base_url,
        model=settings.model,
        api_key_env=settings.api_key_env,
        timeouts=settings.timeouts,
        fields={"family": attempts.family, "source": attempts.source, "evidence": evidence},
    )
    with opened(workspace, name) as pool:
        added = pool.add_all(written.records)
    return Lessons(
        name,
        directory.run_id,
        "endpoint",
        len(attempts.trajectories),
        added,
        dict.fromkeys(written.refused, 1),
        len(attempts.guards),
        attempts.notices,
    )


def record_document(record: ExperienceRecord, *, whole: bool = False) -> dict[str, Any]:
    """A record as JSON: what a list shows, or all of it."""
    document: dict[str, Any] = {
        "id": record.id,
        "status": record.status.value,
        "polarity": record.polarity.value,
        "kind": record.kind.value,
        "family": record.family,
        "when_to_use": record.when_to_use,
        "content": record.content,
        "counters": asdict(record.counters),
        "uplift": uplift_document(record),
    }
    if record.status_reason:
        document["status_reason"] = record.status_reason
    if whole:
        document |= {
            "pool": record.pool,
            "quality": record.quality,
            "author": record.author,
            "tags": list(record.tags),
            "evidence": [vars(one) for one in record.evidence],
            "source": vars(record.source),
            "supersedes": list(record.supersedes),
            "contradicts": list(record.contradicts),
            "created": record.created,
            "modified": record.modified,
            "rendered": record.rendered(),
        }
    return document


def uplift_document(record: ExperienceRecord) -> dict[str, Any] | None:
    """Success with the record minus success of the control share, with its 95 % interval; None: not measured."""
    found = uplift(record.counters)
    if found is None:
        return None
    return {"value": found.value, "ci95": [found.low, found.high], "guided": found.guided, "control": found.control}


def hit_document(hit: Hit) -> dict[str, Any]:
    """A hit as JSON."""
    return {
        **record_document(hit.record),
        "score": hit.score,
        "similarity": None if hit.similarity != hit.similarity else hit.similarity,
        "text_rank": hit.text_rank,
        "vector_rank": hit.vector_rank,
    }


def statuses_of(name: str) -> Sequence[Status]:
    """`active`, `quarantined`, `retired` or `all`. Raises ExperienceError."""
    if name == "all":
        return tuple(Status)
    if name not in list(Status):
        raise ExperienceError(f"status {name!r} is not allowed; allowed: {', '.join(Status)}, all")
    return (Status(name),)
