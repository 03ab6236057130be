"""A setting of a run's configuration that never reaches the command that was launched, or with another value.

Rule: the session shows the run's configuration (a file it writes or reads) and the command that was launched (a
script, or the trace of `set -x`) with at least three settings; a setting that changes what is learned is in the first
and not in the second, or differs. Names of the same setting in two frameworks are compared under one name.
Needs: both in the session. A command that hands the configuration file on carries all of it and is passed over.
Does not claim: what the run used in its place (a default may happen to be the same).
"""

from optimizer.analyze.detectors.common import finding
from optimizer.analyze.view import View
from optimizer.types import Finding


def detect(view: View) -> list[Finding]:
    """Two findings a run at most: settings that are absent, and settings that differ."""
    found = []
    settings = view.book.settings
    for run in settings.runs:
        differences = settings.differences(run)
        absent = [one for one in differences if one.launched is None]
        other = [one for one in differences if one.launched is not None]
        if absent:
            names = ", ".join(f"{one.written.name} {one.written.text}" for one in absent)
            lines = {one.written.line for one in absent} | {v.line for v in settings.runs[run].launched.values()}
            what = f"{run}: {names} in the configuration, not in the launched command: the run was not given it"
            found.append(finding(view, "config_not_launched", (run, "absent"), what, lines, confidence=0.9))
        if other:
            told = "; ".join(
                f"{one.written.name} {one.written.text} was launched as {one.launched.name} {one.launched.text}"
                for one in other
                if one.launched is not None
            )
            lines = {one.written.line for one in other} | {one.launched.line for one in other if one.launched}
            found.append(finding(view, "config_not_launched", (run, "other"), f"{run}: {told}", lines, confidence=0.8))
    return found
