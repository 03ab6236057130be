"""Writing into the bank's texts: a new patch file, the status of a patch, the lists of a manifest."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from skill_bank.types import Manifest, PatchStatus

_STATUS = re.compile(r"^status:.*$", re.MULTILINE)


def _quoted(text: str) -> str:
    # JSON strings are YAML strings, but for characters outside the plane YAML reads as they are.
    return json.dumps(text, ensure_ascii=False)


def _flow(values: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()) + "}"


def render_patch(
    *,
    id: str,
    target_section: str,
    action: str,
    description: str,
    source: str,
    created: str,
    scope: Mapping[str, Any] | str | None,
    depends_on: Sequence[str],
    conflicts_with: Sequence[str],
    supersedes: Sequence[str],
    new_section: str | None,
    metadata: Mapping[str, str],
    status: str,
    body: str,
) -> str:
    """The text of a patch file."""
    lines = [
        "---",
        f"id: {id}",
        f"target_section: {target_section}",
        f"action: {action}",
        f"description: {_quoted(description)}",
        f"source: {_quoted(source)}",
        f"created: {_quoted(created)}",
    ]
    if scope is not None:
        lines.append(f"scope: {scope if isinstance(scope, str) else _flow(scope) if scope else 'all'}")
    for name, ids in (("depends_on", depends_on), ("conflicts_with", conflicts_with), ("supersedes", supersedes)):
        if ids:
            lines.append(f"{name}: [{', '.join(_quoted(one) for one in ids)}]")
    if new_section is not None:
        lines.append(f"new_section: {new_section}")
    if metadata:
        lines.append(f"metadata: {_flow(metadata)}")
    lines += [f"status: {status}", "---", "", body.strip("\n"), ""]
    return "\n".join(lines)


def edit_status(text: str, status: PatchStatus) -> str:
    """The text of a patch file with another `status`; nothing else changes."""
    head, mark, rest = text[4:].partition("\n---")
    return text[:4] + _STATUS.sub(f"status: {status}", head, count=1) + mark + rest


def render_manifest(text: str, manifest: Manifest) -> str:
    """The text of a manifest. The comments that lead the old `text` are kept."""
    comments = []
    for line in text.split("\n"):
        if not line.startswith("#"):
            break
        comments.append(line)
    lines = [*comments, f"base: {manifest.base}"]
    if manifest.folded:
        lines += _list("", "folded", manifest.folded)
    lines += [*_list("", "active", manifest.active), *_list("", "disabled", manifest.disabled)]
    lines.append("profiles:" if manifest.profiles else "profiles: {}")
    for name, one in manifest.profiles.items():
        lines += [f"  {_word(name)}:", f"    description: {_quoted(one.description)}"]
        if one.base is not None:
            lines.append(f"    base: {one.base}")
        if one.folded:
            lines += _list("    ", "folded", one.folded)
        lines += [*_list("    ", "active", one.active), *_list("    ", "disabled", one.disabled)]
    return "\n".join(lines) + "\n"


def _word(name: str) -> str:
    """A name that YAML reads as text whatever it looks like (`001-a`, `true`)."""
    return name if name[0].isalpha() and name not in ("true", "false", "null") else _quoted(name)


def _list(indent: str, name: str, ids: Sequence[str]) -> list[str]:
    if not ids:
        return [f"{indent}{name}: []"]
    return [f"{indent}{name}:", *(f"{indent}  - {_word(one)}" for one in ids)]
