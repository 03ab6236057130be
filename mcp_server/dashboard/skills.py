"""Documents about skills: what is in force, the history of one, what changed between two versions."""

from typing import TYPE_CHECKING, Any

from mcp_server.answers import clip
from mcp_server.dashboard.shaping import NotThere, Question
from mcp_server.dashboard.source import Source

if TYPE_CHECKING:
    from optimizer.home import Home
    from skill_bank.versions import VersionRecord

MAX_DIFF = 60_000


def skill_list(source: Source) -> dict[str, Any]:
    """All skills, group by group."""
    home = source.home()
    if home is None:
        return {"skills": []}
    return {
        "skills": [
            {
                "skill": one.name,
                "group": one.group,
                "description": clip(one.description, 240),
                "version": one.version,
                "active": list(one.active),
                "patches": dict(one.patches),
                "stale": one.stale,
                "pinned": one.pinned,
                "problems": [str(problem) for problem in one.problems][:5],
            }
            for one in home.bank.status()
        ]
    }


def skill_page(source: Source, skill: str) -> dict[str, Any]:
    """The versions of a skill, the newest first."""
    home = _home_with(source, skill)
    records = home.bank.history(skill)
    return {
        "skill": skill,
        "group": home.bank.group_of(skill),
        "pinned": home.bank.pins().get(skill),
        "versions": [_version(one) for one in reversed(records)],
    }


def skill_difference(source: Source, skill: str, question: Question) -> dict[str, Any]:
    """What changed from version `from` to version `to`: text line by line, policy value by value."""
    from skill_bank.difference import compare

    home = _home_with(source, skill)
    records = {one.number: one for one in home.bank.history(skill)}
    numbers = list(records)
    if not numbers:
        raise NotThere(f"{skill} has no version yet")
    newer = question.number("to", numbers[-1], 1, 10**6)
    older = question.number("from", max(1, newer - 1), 1, 10**6)
    if older not in numbers or newer not in numbers:
        raise NotThere(f"{skill} has the versions {numbers[0]} to {numbers[-1]}")
    change = compare(
        home.bank.version_files(skill, older),
        home.bank.version_files(skill, newer),
        f"version {older}",
        f"version {newer}",
    )
    return {
        "skill": skill,
        "from": older,
        "to": newer,
        "diff": change.text[:MAX_DIFF],
        "diff_cut": len(change.text) > MAX_DIFF,
        "policy": [one.as_dict() for one in change.policy],
        "profiles": _profiles_that_differ(records[older], records[newer]),
    }


def _profiles_that_differ(older: "VersionRecord", newer: "VersionRecord") -> list[str]:
    """Profiles under which the skill compiles to something else: a patch made for one changes nothing without it."""
    names = {*older.profiles, *newer.profiles}
    return sorted(name for name in names if older.profiles.get(name) != newer.profiles.get(name))


def _home_with(source: Source, skill: str) -> "Home":
    home = source.home()
    if home is None or skill not in home.bank.skills():
        raise NotThere(f"there is no skill {skill[:64]!r}")
    return home


def _version(record: "VersionRecord") -> dict[str, Any]:
    return {
        "version": record.number,
        "digest": record.digest,
        "patches": list(record.patches),
        "created_at": record.created_at,
        "reason": record.reason,
        "restored": record.restored,
    }
