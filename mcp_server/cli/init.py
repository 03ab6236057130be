"""`mcp-evo init`: a folder with an environment, tasks and a configuration of your own that train as they stand."""

import json
import random
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from mcp_server.cli.context import CliState, CommandError, executable, to_stdout
from mcp_server.policy_in_force import policy_in_force
from skill_bank.files import write_text_atomic
from trainer.config import TrainingConfig
from trainer.config_errors import allowed_values
from trainer.models.catalog import aliases
from trainer.runs.errors import WorkspaceError

TASKS = 160
"""Lines of tasks.jsonl: split 60/20/20, enough for a test that says something."""

ACTIVE = {
    "env": "python:my_env:MyEnv",
    "data": "tasks.jsonl",
    "model": "tiny",
    "problems": 64,
    "max_steps": 20,
    "target_reward": 0.9,
    "seed": 1,
}
"""Field → value that the configuration sets; the others stand in it as comments."""

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("What to learn", ("env", "data", "columns", "reward", "env_args", "difficulty", "problems", "system_prompt")),
    ("The model", ("model", "device", "dtype", "lora", "lora_rank", "threads")),
    ("How long", ("max_steps", "epochs", "max_episodes", "target_reward")),
    (
        "How to learn",
        (
            "learning_rate",
            "lr_schedule",
            "warmup_steps",
            "batch_size",
            "num_generations",
            "loss_type",
            "scale_rewards",
            "beta",
            "max_grad_norm",
        ),
    ),
    ("Episodes", ("temperature", "max_completion_tokens", "max_turns", "tool_timeout_s")),
    (
        "Measuring",
        ("test_problems", "validation_problems", "validate_every", "seed", "mode", "save_every", "report_to"),
    ),
)
"""Sections of the configuration file."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("init")(init)


def init(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="Where to write the three files.")] = Path("."),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="{folder, files, workspace, next} on stdout.")] = False,
) -> None:
    """Write config.yaml, my_env.py and tasks.jsonl to begin with, and create the workspace."""
    state: CliState = context.obj
    contents = {"config.yaml": config_text(), "my_env.py": environment_text(), "tasks.jsonl": tasks_text()}
    existing = [name for name in contents if (folder / name).exists()]
    if existing and not force:
        raise CommandError(
            f"{', '.join(existing)} exist in {folder.absolute()}; nothing was written. "
            f"Name another folder, or add --force."
        )
    workspace = state.writable()
    policy_in_force(workspace)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            write_text_atomic(folder / name, text)
    except OSError as error:
        raise WorkspaceError(f"{folder.absolute()} cannot be written ({error.strerror or error}).") from error
    path = folder / "config.yaml"
    following = f"{executable()} train --config {path}"
    if as_json:
        document = {
            "folder": str(folder.absolute()),
            "files": list(contents),
            "workspace": str(workspace.root),
            "next": following,
        }
        print(json.dumps(document, ensure_ascii=False))
        return
    console = to_stdout()
    for name, purpose in (
        ("config.yaml", "every setting with its meaning; change what you like"),
        ("my_env.py", "your environment: tools and reward"),
        ("tasks.jsonl", "your problems, one a line"),
    ):
        console.print(f"{folder / name!s:28} {purpose}", markup=False)
    console.print(f"{'workspace':28} {workspace.root}", markup=False)
    console.print(f"\ntrain with: {following}", markup=False)


def environment_text() -> str:
    """The environment to begin with."""
    return files("mcp_server.cli").joinpath("templates").joinpath("my_env.py").read_text(encoding="utf-8")


def tasks_text(count: int = TASKS, seed: int = 7) -> str:
    """`count` different problems with their answers, one JSON object a line."""
    rng = random.Random(seed)
    lines: dict[str, str] = {}
    while len(lines) < count:
        a, b, c = (rng.randint(2, 99) for _ in range(3))
        first, second = rng.choice("+-*"), rng.choice("+-*")
        if rng.random() < 0.5:
            a, b = a % 19 + 2, b % 19 + 2
            expression, answer = f"{a} {first} {b}", _apply(a, first, b)
        else:
            expression, answer = f"({a} {first} {b}) {second} {c}", _apply(_apply(a, first, b), second, c)
        prompt = f"What is {expression}?"
        lines.setdefault(prompt, json.dumps({"prompt": prompt, "answer": str(answer)}))
    return "\n".join(lines.values()) + "\n"


def _apply(a: int, sign: str, b: int) -> int:
    return {"+": a + b, "-": a - b, "*": a * b}[sign]


def config_text() -> str:
    """Every field that a person may want to set, with its meaning, allowed values and default."""
    lines = [
        "# Configuration of a training run: mcp-evo train --config config.yaml",
        "# Lines that begin with # are defaults or what policy chooses for the model; take the # away to set them.",
        "# The request and --set on the command line beat what stands here.",
    ]
    for title, names in GROUPS:
        lines += ["", f"# ---- {title}"]
        for name in names:
            lines += _field_lines(name)
    return "\n".join(lines) + "\n"


def _field_lines(name: str) -> list[str]:
    info = TrainingConfig.model_fields[name]
    default = info.get_default(call_default_factory=True)
    allowed = f"{', '.join(aliases())}, …" if name == "model" else allowed_values(name)
    lines = [f"# {info.description}", f"#   allowed: {allowed}"]
    if name in ACTIVE:
        return [*lines, f"{name}: {_yaml(ACTIVE[name])}"]
    return [*lines, f"# {name}: {_yaml(default)}"]


def _yaml(value: object) -> str:
    """A plain value as YAML, which JSON is; a float keeps its dot so that YAML reads a number."""
    if isinstance(value, float) and "e" in repr(value):
        mantissa, _, exponent = repr(value).partition("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"
    text = json.dumps(value, ensure_ascii=False)
    return text.strip('"') if isinstance(value, str) and ":" not in value else text
