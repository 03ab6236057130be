"""The protocol's own test programs, from npm, in a cache folder outside of the tree.

Each set is pinned, installed once and then used without a network. Everything here is for tests: the product needs no
Node.js.
"""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CACHE_VARIABLE = "MCP_EVO_NPM_CACHE"
"""Another folder for the packages."""

INSTALL_TIMEOUT_S = 120.0

NODE = "node@22.23.3"
"""The suite needs Node.js 22; npm has its binary as a package."""


class ToolsUnavailable(Exception):
    """A program of npm cannot be had here; the message says why."""


@dataclass(frozen=True)
class NpmTool:
    """Packages that are used together."""

    name: str
    packages: tuple[str, ...]
    program: str
    """Name in node_modules/.bin."""

    @property
    def folder(self) -> Path:
        """Where it is or would be; another version has another folder."""
        versions = "-".join(package.rpartition("@")[2] for package in self.packages)
        return cache_folder() / f"{self.name}-{versions}"

    @property
    def binaries(self) -> Path:
        """The folder of its programs, Node.js among them."""
        return self.folder / "node_modules" / ".bin"

    @property
    def installed(self) -> bool:
        """Whether it is there, whole: the folder appears by a rename when all is in it."""
        wanted = (self.program, "node") if self.brings_node else (self.program,)
        return all((self.binaries / program).exists() for program in wanted)

    @property
    def brings_node(self) -> bool:
        """Whether it runs on a Node.js of its own."""
        return NODE in self.packages

    def install(self) -> None:
        """Installs it where it is missing. Raises ToolsUnavailable where npm is missing or its registry unreachable."""
        if self.installed:
            return
        npm = shutil.which("npm")
        if npm is None:
            raise ToolsUnavailable(f"{self.name} needs npm (and Node.js 20 to run it), which is not on PATH")
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder.parent, prefix=".installing-") as staging:
            command = [npm, "install", "--no-audit", "--no-fund", "--prefix", staging, *self.packages]
            retries = {"npm_config_fetch_retries": "1", "npm_config_fetch_timeout": "30000"}
            try:
                done = subprocess.run(
                    command,
                    env={**os.environ, **retries},
                    cwd=staging,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=INSTALL_TIMEOUT_S,
                )
            except subprocess.TimeoutExpired as error:
                raise ToolsUnavailable(f"npm did not install {self.name} within {INSTALL_TIMEOUT_S:g} s") from error
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or ["no reason given"])[0]
                raise ToolsUnavailable(f"npm cannot install {', '.join(self.packages)}: {last[:300]}")
            node = Path(staging) / "node_modules" / ".bin" / "node"
            if self.brings_node and not node.exists():  # npm may be set to run no scripts
                raise ToolsUnavailable(f"npm installed {NODE} without its program: allow its install script")
            os.chmod(staging, 0o755)
            if not self.installed:
                shutil.move(staging, self.folder)
                Path(staging).mkdir()  # for the context manager to take away

    def environment(self, home: Path) -> dict[str, str]:
        """For running it: its own Node.js first, and a home of its own, where it may leave what it likes."""
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        return {**kept, "PATH": f"{self.binaries}{os.pathsep}{os.environ.get('PATH', os.defpath)}", "HOME": str(home)}

    @property
    def command(self) -> list[str]:
        """The program."""
        return [str(self.binaries / self.program)]


def cache_folder() -> Path:
    """`$MCP_EVO_NPM_CACHE`, else `mcp-evo/npm` in the user's cache folder."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mcp-evo" / "npm"


CONFORMANCE = NpmTool("conformance", (NODE, "@modelcontextprotocol/conformance@0.2.0-alpha.12"), "conformance")

INSPECTOR = NpmTool("inspector", (NODE, "@modelcontextprotocol/inspector@2.12.0"), "mcp-inspector")
