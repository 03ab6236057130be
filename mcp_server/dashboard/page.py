"""The page: one HTML file made of the parts in `page/`, with a policy that lets nothing else in.

The policy names styles and script by their hashes, so nothing that is put into the page by other means is carried out;
trusted types forbid every way from text to markup. The browser's page gets the policy as a header, the app's page,
which a client shows in a frame of its own, as an element.
"""

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

PARTS = Path(__file__).parent / "page"

SCRIPTS = ("text.js", "asking.js", "charts.js", "runs.js", "episodes.js", "patches.js", "others.js", "main.js")
"""In the order in which they are put together."""

Place = Literal["browser", "app"]
"""Where the page is shown: at an address of ours, or by an MCP client."""


@dataclass(frozen=True)
class Page:
    """The page of one place."""

    html: str
    policy: str
    """Its Content-Security-Policy."""


@cache
def page_for(place: Place) -> Page:
    """Makes the page."""
    style = _read("style.css")
    script = '"use strict";\n{\n' + "\n".join(_read(name) for name in SCRIPTS) + "\n}\n"
    rules = [
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(style)}'",
        "img-src data:",
        "connect-src 'self'" if place == "browser" else "connect-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    if place == "browser":
        policy, element = "; ".join([*rules, "frame-ancestors 'none'"]), ""
    else:
        policy = "; ".join(rules)
        element = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    html = _read("index.html")
    for name, text in (("place", place), ("policy", element), ("style", style), ("script", script)):
        html = html.replace("{{" + name + "}}", text, 1)
    return Page(html, policy)


def _read(name: str) -> str:
    return (PARTS / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """As a policy names an inline script or style: SHA-256 of exactly what stands between its tags."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"
