"""A trial as it goes on: a line a pair with both arms, their difference and how the whole stands."""

from rich.console import Console

from mcp_server.cli.live import duration
from mcp_server.cli.optimizing import interval_text, signed
from optimizer.meta.types import META
from optimizer.trial.run import TrialProgress
from optimizer.trial.screen import ScreenProgress
from optimizer.trial.types import Decision, Pair
from optimizer.tryout import trial_cost


class TrialLines:
    """Prints the steps of a trial."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def show(self, step: TrialProgress) -> None:
        """Prints one step."""
        if step.kind == "start":
            self._start(step)
        elif step.kind == "pair":
            self._pair(step)
        elif step.decision is not None:
            self._decided(step.decision, step.spec.kind)
        elif step.kind == "cancelled":
            self._line(f"stopped after {len(step.pairs)} pairs; `mcp-evo patches try {step.spec.patch_id}` goes on")

    def _line(self, text: str, style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False)

    def _start(self, step: TrialProgress) -> None:
        spec = step.spec
        if spec.kind == META:
            self._line(f"trial {spec.trial_id}: recorded trials are replayed without and with the patch")
            return
        cost = trial_cost(spec, None)
        names = ", ".join(scenario.name for scenario in spec.scenarios)
        again = "" if not step.pairs else f", {len(step.pairs)} pairs are there already"
        self._line(
            f"trial {spec.trial_id}: plan {spec.plan.name}, looks at {', '.join(map(str, spec.plan.looks))} pairs, "
            f"at most {cost['episodes']:,} episodes; scenarios {names}{again}"
        )
        self._line(
            f"{'pair':>4}  {'scenario':<22} {'base':>6} {'patched':>8} {'diff':>7}   {'mean so far':<24} seconds"
        )

    def _pair(self, step: TrialProgress) -> None:
        pair = step.pairs[-1]
        summary = step.summary
        assert summary is not None
        differences = [one.difference for one in step.pairs]
        mean = sum(differences) / len(differences)
        so_far = f"{signed(mean)}"
        if summary.interval is not None and summary.pairs == len(step.pairs):
            so_far += f" {interval_text(summary.interval)}"
        left = "" if not step.seconds_left else f"  (at most {duration(step.seconds_left)} left)"
        seconds = "–" if pair.seconds is None else f"{pair.seconds:.1f}"
        self._line(
            f"{pair.index + 1:>4}  {pair.scenario:<22} {pair.base.success:>6.3f} {pair.patched.success:>8.3f} "
            f"{signed(pair.difference):>7}   {so_far:<24} {seconds}{left}{_collapses(pair)}"
        )

    def _decided(self, decision: Decision, kind: str) -> None:
        style = {"better": "green", "worse": "red"}.get(str(decision.verdict))
        self._line(f"verdict: {decision.say}", style)
        summary = None if kind == META else decision.summary
        if summary is not None:
            base, patched = summary.collapses_base, summary.collapses_patched
            correlation = "–" if summary.correlation is None else f"{summary.correlation:.2f}"
            self._line(
                f"  success {summary.base_mean:.3f} → {summary.patched_mean:.3f}; collapses {base.count} of {base.n} → "
                f"{patched.count} of {patched.n} (up to {patched.high:.0%} is possible); correlation {correlation}"
            )
            for effect in summary.scenarios:
                self._line(f"  {effect.scenario:<22} {signed(effect.mean)} over {effect.pairs} pairs")
        self._line(f"  next: {decision.next_step}")

    def show_screening(self, step: ScreenProgress) -> None:
        """A line a row of a screening."""
        if not step.rows:
            self._line(f"screening: {step.wanted} pairs for each candidate against one shared base")
            return
        row = step.rows[-1]
        arms = "  ".join(f"{name} {arm.success:.3f}" for name, arm in row.candidates.items())
        means = ", ".join(f"{name} {signed(effect)}" for name, effect in step.effects().items())
        self._line(f"{row.index + 1:>4}  {row.scenario:<22} base {row.base.success:.3f}  {arms}   mean: {means}")


def _collapses(pair: Pair) -> str:
    found = [name for name, arm in (("base", pair.base), ("patched", pair.patched)) if arm.collapsed]
    return f"  collapsed: {', '.join(found)}" if found else ""
