"""A headless Chromium, driven over its debugging pipe (JSON messages that end with a NUL), without any library."""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "headless_shell")

MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")

FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--mute-audio", "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip

_LAUNCH = (
    "import os, sys\n"
    "read, write = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))\n"
    "read, write = (os.dup(one) if one < 5 else one for one in (read, write))\n"
    "os.dup2(read, 3); os.dup2(write, 4)\n"
    "os.execv(sys.argv[3], sys.argv[3:])\n"
)
"""Puts the pipe where Chromium expects it, on descriptors 3 and 4."""

KEYS = {
    "Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), "ArrowLeft": (37, ""), "ArrowUp": (38, ""),
    "ArrowRight": (39, ""), "ArrowDown": (40, ""), "Home": (36, ""), "End": (35, ""),
}  # fmt: skip


def find_chromium() -> str | None:
    """The browser of this machine: `$MCP_EVO_CHROMIUM`, or one of the usual names."""
    named = os.environ.get("MCP_EVO_CHROMIUM")
    if named:
        return named
    found = next((path for name in NAMES if (path := shutil.which(name)) is not None), None)
    return found or (str(MAC) if MAC.exists() else None)


class Browser:
    """One page of a Chromium."""

    def __init__(self, to: int, answers: int) -> None:
        self._to, self._answers = to, answers
        self._data = b""
        self._count = 0
        self._session: str | None = None
        self.problems: list[str] = []
        """Messages of the console that are errors, exceptions of scripts, violations of the page's policy."""
        self.requests: list[str] = []
        """Every address that the page asked for."""

    def start(self) -> None:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> Any:
        """Carries out a command of the protocol and returns its result."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]

    def _next(self, timeout_s: float = 60) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while b"\0" not in self._data:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "Chromium does not answer"
            part = os.read(self._answers, 1 << 20)
            assert part, "Chromium has ended"
            self._data += part
        line, _, self._data = self._data.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        what, told = message.get("method"), message.get("params", {})
        if what == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif what == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(one.get("value", one.get("description"))) for one in told["args"]))
        elif what == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif what == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])

    def show(self, width: int, height: int, *, dark: bool = False, scale: float = 1, touch: bool = False) -> None:
        """Sets the window and the colours that the person prefers."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=touch
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.send("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, script: str, timeout_s: float = 20) -> Any:
        """Waits until an expression is true, and returns its value."""
        deadline = time.monotonic() + timeout_s
        while True:
            value = self.run(f"(() => {{ try {{ return {script}; }} catch {{ return null; }} }})()")
            if value:
                return value
            assert time.monotonic() < deadline, f"never: {script}\n{self.problems}\n{self.text()[:2000]}"
            time.sleep(0.05)

    def text(self) -> str:
        """What a person reads on the page."""
        return str(self.run("document.body ? document.body.innerText : ''"))

    def press(self, *keys: str) -> None:
        """Presses keys, or types what is no key's name."""
        for key in keys:
            if key not in KEYS:
                self.send("Input.insertText", text=key)
                continue
            code, text = KEYS[key]
            about = {"key": key, "code": key, "windowsVirtualKeyCode": code}
            self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **about)
            self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A picture of the window, or of the whole page."""
        more: dict[str, Any] = {}
        if whole:
            size = self.send("Page.getLayoutMetrics")["cssContentSize"]
            more = {"captureBeyondViewport": True, "clip": {"x": 0, "y": 0, "scale": 1} | {
                name: size[name] for name in ("width", "height")
            }}  # fmt: skip
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png", **more)["data"]))


@contextmanager
def browsing(chromium: str) -> Iterator[Browser]:
    """A Chromium with a profile of its own."""
    here_reads, there_writes = os.pipe()
    there_reads, here_writes = os.pipe()
    profile = tempfile.mkdtemp(prefix="mcp-evo-browser-")
    arguments = [str(there_reads), str(there_writes), chromium, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, *arguments],
        pass_fds=(there_reads, there_writes),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(there_reads)
    os.close(there_writes)
    try:
        browser = Browser(here_writes, here_reads)
        browser.start()
        yield browser
    finally:
        process.kill()
        process.wait()
        os.close(here_reads)
        os.close(here_writes)
        shutil.rmtree(profile, ignore_errors=True)
