"""Configuration is data: no tag, no pickle and no name in a tool's argument becomes code; no text makes a reader run
away. The `python:` environment comes only from a config file that a person wrote and gave in a terminal."""

import ast
import json
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from server_helpers import in_memory, text_of

from skill_bank.importing.single import import_single
from skill_bank.yamltree import YamlProblem, parse_yaml
from trainer.config import ConfigError
from trainer.runs.errors import WorkspaceError
from trainer.runs.workspace import create_workspace
from trainer.settings import parse_override, read_config_file

pytestmark = pytest.mark.anyio

PACKAGES = ("skill_bank", "trainer", "optimizer", "mcp_server")
REPOSITORY = Path(__file__).parents[2]

TAGS = (
    "!!python/object/apply:os.system ['touch {made}']",
    "!!python/object/new:os.system ['touch {made}']",
    "!!python/name:os.system",
    "!!python/module:os",
    "!!python/object:subprocess.Popen {{args: [touch, {made}]}}",
    "!!map {{? !!python/object/apply:os.system ['touch {made}'] : x}}",
    "!include /etc/passwd",
)

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
"""A hundred billion `x` when written out."""

DEEP = "[" * 50_000 + "{" * 50_000

LIMIT_S = 20
"""Far beyond what a reader takes, far below what such a text would."""


# ---- YAML


@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_is_refused_and_runs_nothing(tmp_path: Path, tag: str) -> None:
    made = tmp_path / "made"
    value = tag.format(made=made)
    with pytest.raises(YamlProblem):
        parse_yaml(f"key: {value}\n")
    config = tmp_path / "config.yaml"
    config.write_text(f"model: {value}\n")
    with pytest.raises(ConfigError):
        read_config_file(config)
    key, parsed = parse_override(f"model={value}")
    assert (key, parsed) == ("model", value)  # text, as it cannot be read as YAML
    workspace = create_workspace(tmp_path / "w")
    workspace.config_path.write_text(f"redaction: {value}\n")
    with pytest.raises(WorkspaceError):
        workspace.config()
    skill = tmp_path / "SKILL.md"
    skill.write_text(f"---\nname: x\ndescription: {value}\n---\n# X\ntext\n")
    import_single(skill)
    assert not made.exists()


def bounded(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a piece of Python in a process with a gigabyte at most, which fails where it takes too long."""
    limited = f"import resource\nresource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\nimport sys\n{code}"
    return subprocess.run(
        [sys.executable, "-P", "-c", limited, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S * 6,
        cwd=REPOSITORY,
    )


BOUNDED = """
import time
from pathlib import Path
from skill_bank.importing.single import import_single
from skill_bank.yamltree import YamlProblem, parse_yaml
from trainer.config import ConfigError
from trainer.runs.errors import WorkspaceError
from trainer.runs.workspace import create_workspace
from trainer.settings import read_config_file, resolve
folder = Path(sys.argv[1])
text = (folder / "text").read_text()
began = time.monotonic()

def refused(call, *errors):
    try:
        call()
    except errors as error:
        assert len(str(error)) < 20_000, len(str(error))

refused(lambda: parse_yaml(text), YamlProblem)
(folder / "config.yaml").write_text(text)
refused(lambda: read_config_file(folder / "config.yaml"), ConfigError)
refused(lambda: resolve(config_file=folder / "config.yaml"), ConfigError)
workspace = create_workspace(folder / "w")
workspace.config_path.write_text("redaction:\\n" + "".join(f"  {line}\\n" for line in text.splitlines()))
refused(workspace.config, WorkspaceError)
(folder / "SKILL.md").write_text(f"---\\nname: x\\ndescription: y\\n{text}\\n---\\n# X\\ntext\\n")
import_single(folder / "SKILL.md")
print(time.monotonic() - began)
"""


@pytest.mark.slow
def test_a_text_that_would_grow_is_read_in_bounds(tmp_path: Path) -> None:
    for name, text in {"bomb": BOMB, "deep": DEEP, "keys": "? " * 5000, "long": "a: " + "x" * 200_000}.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "text").write_text(text)
        done = bounded(BOUNDED, str(folder))
        assert done.returncode == 0, (name, done.stderr[-2000:])
        assert float(done.stdout) < LIMIT_S, name


# ---- pickles and other ways to run code, in the whole product


BANNED_IMPORTS = frozenset({"pickle", "cPickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"})
BANNED_CALLS = frozenset({"eval", "exec", "compile", "__import__"})
BANNED_METHODS = frozenset(
    {
        *(("yaml", name) for name in ("load", "load_all", "full_load", "unsafe_load", "unsafe_load_all")),
        *(("os", name) for name in ("system", "popen", "execv", "execve", "spawnl", "spawnv")),
        ("pickle", "loads"),
    }
)


def violations(path: Path) -> list[str]:
    """What in a file could run what it reads."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.relative_to(REPOSITORY)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            found += [f"{where} imports {one.name}" for one in node.names if one.name.split(".")[0] in BANNED_IMPORTS]
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in BANNED_IMPORTS:
            found.append(f"{where} imports {node.module}")
        if not isinstance(node, ast.Call):
            continue
        named = {one.arg: one.value for one in node.keywords}
        if isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS:
            found.append(f"{where} calls {node.func.id}")
        if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            called = (node.func.value.id, node.func.attr)
            if called in BANNED_METHODS:
                found.append(f"{where} calls {'.'.join(called)}")
            if called == ("torch", "load") and not _is(named.get("weights_only"), True):
                found.append(f"{where} torch.load without weights_only=True")
        if (
            _is(named.get("shell"), True)
            or _is(named.get("trust_remote_code"), True)
            or _is(named.get("allow_pickle"), True)
        ):
            found.append(f"{where} shell, remote code or pickles")
    return found


def _is(node: ast.AST | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def test_nothing_in_the_product_runs_what_it_reads() -> None:
    files = [path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py")]
    assert len(files) > 200
    assert [one for path in files for one in violations(path)] == []


def test_the_search_for_them_finds_them(tmp_path: Path) -> None:
    bad = REPOSITORY / "tests" / "security" / "examples_of_bad_code.txt"
    lines = bad.read_text().splitlines()
    assert len(violations(bad)) == sum(
        not line.startswith(("#", "import os", "import yaml", "import torch")) for line in lines
    )


class Mine:
    """Unpickling it would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_weights_that_are_a_pickle_run_nothing(tmp_path: Path) -> None:
    """As `trainer.session` and `transformers` read them."""
    torch = pytest.importorskip("torch")
    made = tmp_path / "made"
    (tmp_path / "best.pt").write_bytes(pickle.dumps(Mine(made)))
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load(tmp_path / "best.pt", weights_only=True)
    assert not made.exists()
    torch.save({"x": Mine(made)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load(tmp_path / "pytorch_model.bin", weights_only=True)
    assert not made.exists()


# ---- code named by a tool's argument


CODE = ("python:os:system", "python:evil:Environment", "python:../evil:X", "PYTHON:os:system", " python:os:system",
        "os.system", "trainer.envs.calculator:Calculator", "python:", "python::", "evil.py")  # fmt: skip


async def test_no_argument_names_code(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = root.parent
    project.mkdir(parents=True)
    made = project / "made"
    (project / "evil.py").write_text(f"open({str(made)!r}, 'w')\nclass Environment: pass\n")
    monkeypatch.chdir(project)
    async with in_memory(root, "auto") as caller:
        for code in CODE:
            for tool, arguments in (
                ("start_training", {"request": "tiny", "overrides": {"env": code}}),
                ("start_training", {"request": "tiny", "overrides": {"reward": code}}),
                ("start_training", {"request": "tiny", "overrides": {"folder": str(project)}}),
                ("start_training", {"request": "tiny", "overrides": {"env": code}, "campaign": {"target": 0.5}}),
                ("evaluate_model", {"target": "tiny", "env": code}),
                ("try_model", {"target": "tiny", "problem": 0, "env": code}),
            ):
                result = await caller.raw(tool, **arguments)
                assert result.is_error, (tool, arguments, result.structured_content)
                assert not text_of(result).startswith("Error executing tool"), (tool, arguments)
        for request in (f"tiny with env={code}" for code in CODE if code.startswith("python:")):
            result = await caller.raw("start_training", request=request)
            if not result.is_error:  # the words had no effect
                assert result.structured_content is not None
                env = result.structured_content["settings"].get("env", {"value": "calculator"})["value"]
                assert not str(env).startswith("python:")
        assert (await caller.ok("skill_status"))["total"] > 0
        value = json.dumps({"env": "python:evil:Environment"})
        body = f"```yaml policy\nenv: {{default: python:evil:Environment}}\n```\n{value}"
        said = await caller.raw("propose_patch", skill="rllm-config", section="sizes", body=body, description="x")
        assert said.is_error
    assert not made.exists()


def test_a_person_can_name_code_in_a_file(tmp_path: Path) -> None:
    """So the refusal is of the tool, not of the thing."""
    from trainer.settings import resolve

    (tmp_path / "own.py").write_text("class Environment: pass\n")
    config = tmp_path / "config.yaml"
    config.write_text("env: python:own:Environment\n")
    began = time.monotonic()
    found = resolve(config_file=config).config
    assert found.env == "python:own:Environment"
    assert time.monotonic() - began < LIMIT_S
