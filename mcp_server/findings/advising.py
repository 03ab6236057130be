"""Findings of a run and the advice that follows from them, by the policies in force, for tool and command alike."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optimizer.analyze.advice import Advice
    from optimizer.home import Home
    from optimizer.types import Finding
    from trainer.runs.rundir import RunDirectory


def findings_and_advice(home: "Home", directory: "RunDirectory") -> "tuple[list[Finding], list[Advice]]":
    """Both for one run, findings the most explaining first, advice the surest first. Raises RunError, BankError."""
    from mcp_server.findings.proposing import situation_of
    from optimizer.analyze.advice import advise
    from optimizer.analyze.levers import LEVER_SKILL
    from optimizer.analyze.runs import analyse_run
    from trainer.config import ConfigError

    document = directory.read_document()
    findings = analyse_run(directory, home.lever_table(), home.thresholds())
    try:
        situation = situation_of(home, document.run_id)
    except ConfigError:  # its model is not where it was: what was found stays true, but no range is known for it
        return findings, []
    test = document.eval.get("after") or document.eval.get("before")
    ranges = home.policy_of(LEVER_SKILL, situation.context)
    return findings, advise(findings, situation.config, ranges, test)
