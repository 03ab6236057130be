"""Records for tests."""

from typing import Any

from trainer.experience.records import ExperienceRecord, Status


def lesson(when: str, content: str, **fields: Any) -> ExperienceRecord:
    """An active record with fixed times."""
    return ExperienceRecord(when, content, **{"status": Status.ACTIVE, "created": 1.0, "modified": 1.0} | fields)
