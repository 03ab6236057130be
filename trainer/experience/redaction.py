"""Secrets do not get into a record. Keys with a recognisable form, wherever a pool is written.

Commands and tools pass the redaction of the recorded trajectories in its place (`ExperiencePool(redact=…)`), which also
knows assignments and what the workspace's `config.yaml` adds; this one is what a training process, which may not import
it, always has.
"""

import re
from collections.abc import Callable

Redactor = Callable[[str], str]

_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("private-key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*KEY-----|\Z)", re.DOTALL)),
    ("api-key", re.compile(r"\b(?:sk|rk|pk)[-_][A-Za-z0-9_-]{16,}")),
    ("aws-key", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    ("token", re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|xox[abeoprs]-|AIza)[A-Za-z0-9_-]{12,}")),
    ("jwt", re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}")),
    ("bearer", re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{12,}")),
    ("login", re.compile(r"(?<=://)[^\s:/@]{1,256}:[^\s/@]{1,256}(?=@)")),
)  # fmt: skip


def redact_shapes(text: str) -> str:
    """`text` without keys of known forms; each leaves `[redacted:<what>]`."""
    for what, shape in _SHAPES:
        text = shape.sub(f"[redacted:{what}]", text)
    return text
