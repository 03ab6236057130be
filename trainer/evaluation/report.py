"""An evaluation in words and tables, the same for terminal, tool and file. Pure."""

from trainer.evaluation.types import EvaluationResult, Rate, SplitResult, SubjectResult
from trainer.runs.wording import counted

MAX_CATEGORIES = 30
"""Rows of the table of one split; further kinds are in the JSON."""


def rate_text(rate: Rate | SplitResult) -> str:
    """`0.953 [0.901, 0.981]`."""
    return f"{rate.mean:.3f} [{rate.ci95[0]:.3f}, {rate.ci95[1]:.3f}]"


def headline(result: EvaluationResult) -> str:
    """What was evaluated on what."""
    seeds = ", ".join(map(str, result.seeds))
    tries = f", {counted(result.samples, 'attempt')} at each" if result.samples > 1 else ""
    return (
        f"{result.evaluation_id}: {result.target} on {result.env} ({result.difficulty}), "
        f"{counted(result.n, 'problem')} a split{tries}, seed {seeds}, temperature {result.temperature:g}"
    )


def result_lines(result: EvaluationResult) -> list[str]:
    """The result as plain text."""
    lines = [headline(result)]
    lines += [f"warning: {one}" for one in result.warnings]
    for split in result.subjects[0].splits:
        lines += ["", f"{split} split: success (95 % interval)"]
        width = max(len(one.name) for one in result.subjects)
        for subject in result.subjects:
            lines += _subject_lines(subject, subject.splits[split], width)
        lines += _category_lines([(one.name, one.splits[split]) for one in result.subjects])
        lines += [f"  {one.sentence}" for one in result.comparisons if one.split == split]
    return lines


def _subject_lines(subject: SubjectResult, result: SplitResult, width: int) -> list[str]:
    more = [
        ("calls parsed", result.parse_ok_rate),
        ("episodes with a valid call", result.tool_call_rate),
        ("correct given one", result.correct_given_valid_call),
        ("finished", result.finish_rate),
        ("cut by the cap", result.truncated_rate or None),
        ("spoiled by the environment", result.env_error_rate or None),
    ]
    rates = ", ".join(f"{name} {value:.2f}" for name, value in more if value is not None)
    turns = "" if result.turns_mean is None else f", {result.turns_mean:.2f} turns"
    lines = [f"  {subject.name:{width}}  {rate_text(result)}  n={result.n}   ({rates}{turns})"]
    passes = [f"pass@{k} {rate_text(rate)}" for k, rate in result.pass_at.items() if k != "1"]
    if passes:
        lines.append(f"  {'':{width}}  {', '.join(passes)}")
    if len(result.by_seed) > 1:
        seeds = ", ".join(f"seed {one.seed} {rate_text(one)}" for one in result.by_seed)
        lines.append(f"  {'':{width}}  {seeds}")
    return lines


def _category_lines(subjects: list[tuple[str, SplitResult]]) -> list[str]:
    """A row for each kind of problem, a column for each subject; nothing where there is one kind."""
    kinds = [one.category for one in subjects[0][1].categories]
    if len(kinds) < 2:
        return []
    shown = kinds[:MAX_CATEGORIES]
    wide = max(len(kind) for kind in (*shown, "kind of problem"))
    lines = ["", f"  {'kind of problem':{wide}}  problems  " + "  ".join(f"{name:22}" for name, _ in subjects).rstrip()]
    for kind in shown:
        found = [next((one for one in result.categories if one.category == kind), None) for _, result in subjects]
        first = next(one for one in found if one is not None)
        cells = "  ".join(f"{'–' if one is None else rate_text(one):22}" for one in found)
        lines.append(f"  {kind:{wide}}  {first.n:8}  {cells}".rstrip())
    if len(kinds) > len(shown):
        lines.append(f"  … {counted(len(kinds) - len(shown), 'more kind')}; --json has all")
    return lines
