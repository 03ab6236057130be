"""Documents about rounds of evolution."""

from typing import Any

from mcp_server.answers import clip
from mcp_server.dashboard.shaping import NotThere, Question, number_from, paged
from mcp_server.dashboard.source import Source


def round_list(source: Source, question: Question) -> dict[str, Any]:
    """Rounds, the newest first."""
    from optimizer.evolve import round_document
    from optimizer.round_store import RoundStore

    home = source.home()
    if home is None:
        return {"rounds": [], "total": 0, "cursor": None}
    store = RoundStore(home.root)
    numbers, page = paged(list(reversed(store.numbers())), question)
    rows = []
    for number in numbers:
        current = store.read(number)
        rows.append(
            {
                **round_document(home, current),
                "evolution": current.evolution,
                "request": clip(current.request, 200),
                "chosen": current.chosen,
                "layer": current.layer,
                "created_at": current.created_at,
            }
        )
    return {"rounds": rows, **page}


def round_page(source: Source, number: str) -> dict[str, Any]:
    """One round with everything it wrote down."""
    from optimizer.evolve import round_document
    from optimizer.round_store import RoundStore

    home = source.home()
    wanted = number_from(number, "round")
    if home is None or wanted not in RoundStore(home.root).numbers():
        raise NotThere(f"there is no round {wanted}")
    current = RoundStore(home.root).read(wanted)
    return {
        **round_document(home, current),
        "evolution": current.evolution,
        "position": current.position,
        "layer": current.layer,
        "request": current.request,
        "profile": current.profile,
        "skill_versions": current.skill_versions,
        "optimizer_policy": current.optimizer_policy,
        "optimizer_version": current.optimizer_version,
        "session": current.session,
        "report_id": current.report_id,
        "chosen": current.chosen,
        "trial_id": current.trial_id,
        "screening": current.screening,
        "continued_from": current.continued_from,
        "created_at": current.created_at,
        "history": current.history,
    }
