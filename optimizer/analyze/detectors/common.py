"""How detectors make a finding."""

from collections.abc import Iterable, Sequence

from optimizer.analyze.view import View
from optimizer.ids import content_id
from optimizer.types import EventEvidence, Finding, Metric

MAX_EVIDENCE = 40
"""Lines that a finding cites; a longer series is told by its beginning and its end."""


def finding(
    view: View,
    kind: str,
    key: object,
    what: str,
    lines: Iterable[int],
    *,
    confidence: float,
    metrics: Sequence[Metric] = (),
) -> Finding:
    """A finding with a deterministic id: the session, the kind and what it is about."""
    cited = sorted(set(lines))
    if len(cited) > MAX_EVIDENCE:
        cited = [*cited[: MAX_EVIDENCE // 2], *cited[-MAX_EVIDENCE // 2 :]]
    return Finding(
        id=f"finding-{content_id(view.session, kind, key, length=12)}",
        kind=kind,
        what=what,
        evidence=[EventEvidence(session=view.session, line=line) for line in cited],
        metrics=list(metrics),
        confidence=confidence,
        layer=view.layer,
    )


def shortened(text: str, limit: int = 120) -> str:
    """One line, cut."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
