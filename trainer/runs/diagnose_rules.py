"""The order of the rules of `trainer.runs.diagnose`, and which finding explains which others away."""

from trainer.runs.findings import FindingKind, Rule
from trainer.runs.rules_of_learning import budget_too_small, last_word, learning_rate_too_high, learning_rate_too_low
from trainer.runs.rules_of_signal import (
    environment_errors,
    failed,
    groups_too_easy,
    groups_too_hard,
    never_submits,
    no_diversity,
    parser_never_matches,
    truncation,
)

RULES: tuple[Rule, ...] = (
    failed,
    environment_errors,
    truncation,
    parser_never_matches,
    learning_rate_too_high,
    no_diversity,
    groups_too_easy,
    groups_too_hard,
    never_submits,
    learning_rate_too_low,
    budget_too_small,
    last_word,
)
"""In order of explanatory power."""

_K = FindingKind
_LEARNING = {_K.LEARNING_RATE_TOO_LOW, _K.BUDGET_TOO_SMALL, _K.INCONCLUSIVE}
EXPLAINS: dict[FindingKind, frozenset[FindingKind]] = {
    _K.FAILED: frozenset({_K.INCONCLUSIVE, _K.BUDGET_TOO_SMALL, _K.LEARNING_RATE_TOO_LOW}),
    _K.NONFINITE: frozenset({_K.LEARNING_RATE_TOO_HIGH, *_LEARNING}),
    _K.ENVIRONMENT_ERRORS: frozenset({_K.GROUPS_TOO_HARD, _K.NEVER_SUBMITS, *_LEARNING}),
    _K.TRUNCATION: frozenset(
        {_K.PARSER_NEVER_MATCHES, _K.GROUPS_TOO_HARD, _K.NEVER_SUBMITS, _K.NO_DIVERSITY, *_LEARNING}
    ),
    _K.PARSER_NEVER_MATCHES: frozenset({_K.GROUPS_TOO_HARD, _K.NEVER_SUBMITS, _K.NO_DIVERSITY, *_LEARNING}),
    _K.LEARNING_RATE_TOO_HIGH: frozenset(
        {_K.NO_DIVERSITY, _K.GROUPS_TOO_HARD, _K.NEVER_SUBMITS, _K.HEALTHY, *_LEARNING}
    ),
    _K.NO_DIVERSITY: frozenset({_K.GROUPS_TOO_HARD, _K.GROUPS_TOO_EASY, *_LEARNING}),
    _K.GROUPS_TOO_EASY: frozenset(_LEARNING),
    _K.GROUPS_TOO_HARD: frozenset({_K.NEVER_SUBMITS, *_LEARNING}),
    _K.NEVER_SUBMITS: frozenset(_LEARNING),
    _K.LEARNING_RATE_TOO_LOW: frozenset({_K.BUDGET_TOO_SMALL, _K.INCONCLUSIVE}),
    _K.BUDGET_TOO_SMALL: frozenset({_K.INCONCLUSIVE}),
}
"""Finding → findings that it explains away."""
