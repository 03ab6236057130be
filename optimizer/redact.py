"""Secrets are taken out before anything is stored.

Known shapes (keys of common services, bearer headers, private keys, tokens in URLs) wherever they occur in a text, and
the values of fields whose name says that they are secret. What is left is `[redacted:<what>]`.
"""

import re
from typing import Any

_SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "private-key",
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    ),
    ("anthropic-key", re.compile(r"\bsk-ant-[A-Za-z0-9_-]{16,}")),
    ("api-key", re.compile(r"\bsk-[A-Za-z0-9_-]{20,}")),
    ("aws-key", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    ("github-token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})")),
    ("gitlab-token", re.compile(r"\bglpat-[A-Za-z0-9_-]{16,}")),
    ("hf-token", re.compile(r"\bhf_[A-Za-z0-9]{20,}")),
    ("google-key", re.compile(r"\bAIza[A-Za-z0-9_-]{30,}")),
    ("slack-token", re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}")),
    ("stripe-key", re.compile(r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}")),
    ("jwt", re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}")),
    ("bearer", re.compile(r"(?i)(?<=bearer )[A-Za-z0-9._~+/=-]{12,}")),
    ("basic-auth", re.compile(r"(?i)(?<=authorization: basic )[A-Za-z0-9+/=]{8,}")),
    ("url-password", re.compile(r"(?<=://)[^\s:/@]+:[^\s/@]+(?=@)")),
    (
        "assignment",
        re.compile(
            r"""(?ix)(?<![a-z0-9])
            (?P<name>[a-z0-9_-]* (?:password|passwd|secret|api[_-]?key|access[_-]?token|auth[_-]?token))
            (?P<sign> ["']? \s* [:=] \s* ["']? ) (?P<value> [^\s"'&,;{}\[\]]{6,} )"""
        ),
    ),
)

_SECRET_FIELD = re.compile(
    r"(?i)(?:^|[_-])(?:password|passwd|secret|secret_key|api_?key|apikey|access_token|auth_token|private_key|authorization)$"
)


def redact_text(text: str) -> str:
    """`text` without secrets."""
    for what, shape in _SHAPES:
        if what == "assignment":
            text = shape.sub(_keep_name, text)
        else:
            text = shape.sub(f"[redacted:{what}]", text)
    return text


def _keep_name(match: re.Match[str]) -> str:
    if match["value"].startswith("[redacted"):
        return match[0]
    return f"{match['name']}{match['sign']}[redacted:value]"


def redact(value: Any) -> Any:
    """A JSON value without secrets; equal to the input where there are none."""
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return {
            key: "[redacted:field]"
            if isinstance(key, str) and isinstance(one, str) and one and _SECRET_FIELD.search(key)
            else redact(one)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(one) for one in value]
    return value
