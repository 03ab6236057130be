"""Settings of runs: as a configuration holds them, and as the launched command carries them.

A setting counts only if it reaches the command that was launched. Two frameworks name the same setting differently, so
names are compared under one name for each (`actor.optim.lr` is the learning rate); a name that is not in that table is
compared as it is and never reported as absent.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from optimizer.analyze.runs_named import named_runs, stated_runs
from optimizer.analyze.texts import command_of, lines_of, read_path
from optimizer.events import Event

SAME: dict[str, str] = {
    "lr": "learning_rate", "learning_rate": "learning_rate", "optim.lr": "learning_rate",
    "num_epochs": "epochs", "total_epochs": "epochs", "epochs": "epochs", "num_train_epochs": "epochs",
    "train_batch_size": "train_batch_size", "per_device_train_batch_size": "train_batch_size",
    "num_generations": "generations", "rollout.n": "generations", "generations/prompt": "generations",
    "max_response_length": "max_response_length", "max_completion_length": "max_response_length",
    "max_completion_tokens": "max_response_length",
    "max_prompt_length": "max_prompt_length",
    "temperature": "temperature", "rollout.temperature": "temperature",
    "top_p": "top_p", "rollout.top_p": "top_p",
    "seed": "seed", "data.seed": "seed",
    "entropy_coeff": "entropy_coeff", "kl_loss_coef": "kl_loss_coef", "use_kl_loss": "use_kl_loss", "beta": "beta",
    "ppo_mini_batch_size": "ppo_mini_batch_size", "ppo_epochs": "ppo_epochs",
    "max_steps": "max_steps", "total_training_steps": "max_steps",
    "num_problems": "problems", "problems": "problems", "train_max_samples": "problems",
    "test_problems": "test_problems", "test_max_samples": "test_problems",
    "validation_problems": "validation_problems", "val_max_samples": "validation_problems",
    "test_freq": "test_freq", "save_freq": "save_freq",
}  # fmt: skip
"""Name in a configuration or command → the one name it is compared under."""

REPORTED = frozenset({"learning_rate", "epochs", "train_batch_size", "generations", "max_response_length",
                      "temperature", "top_p", "seed", "entropy_coeff", "kl_loss_coef", "max_steps"})  # fmt: skip
"""Settings that change what is learned: one that never reaches the command is worth a finding."""

MIN_OVERRIDES = 3
"""Settings in a command that make it one whose settings are complete enough to say what it lacks."""

_OVERRIDE = re.compile(r"(?<![\w$.{])(?P<key>[A-Za-z_][\w.]*)=(?P<value>[^\s'\"()\\;]+)")
_FLAG = re.compile(r"(?:^|\s)--(?P<key>[a-z][\w-]+)[ =](?P<value>[^\s'\"\\;-][^\s'\"\\;]*)")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_ASSIGNMENT = re.compile(r"(?:^|[;\s])(\w+)=([\w./+-]+)(?=[;\s]|$)")
_CONFIG_FILE = re.compile(r"config[\w-]*\.(?:json|ya?ml|toml)\Z")
_TRACE = re.compile(r"\A\+ (?:exec )?\S*(?:python|torchrun|accelerate|deepspeed)")


@dataclass(frozen=True)
class Value:
    """A setting with the line of the event that shows it."""

    text: str
    line: int
    name: str


@dataclass
class OneRun:
    """What is known of a run's settings."""

    written: dict[str, Value] = field(default_factory=dict)
    launched: dict[str, Value] = field(default_factory=dict)
    by_file: bool = False
    """The command hands a configuration file on, so that it carries whatever stands there."""

    @property
    def complete(self) -> bool:
        return len(self.launched) >= MIN_OVERRIDES and not self.by_file


@dataclass(frozen=True)
class Difference:
    """A setting that the launched command lacks (`launched` is None) or has with another value."""

    name: str
    written: Value
    launched: Value | None


class RunSettings:
    """Settings of the runs of a session."""

    def __init__(self) -> None:
        self.runs: dict[str, OneRun] = {}

    def take(self, event: Event, output: str, known: set[str]) -> None:
        """Takes in a call: configuration files and launch scripts that it writes or shows, commands that launch."""
        path = read_path(event) or ""
        command = command_of(event)
        shown = output
        if event.tool == "Write" and isinstance(event.input, dict):
            shown = str(event.input.get("content") or "")
        elif event.tool == "Bash":
            path = _only_file(command) or ""
        if _CONFIG_FILE.search(path):
            self._config(path, shown, event.line, known)
        if path.endswith(".sh"):
            run = _run_of(path, shown, known)
            if run is not None:
                self._launched(run, shown, event.line)
        self._traces(output, event, known)

    def printed(self, run: str | None, name: str, text: str, line: int) -> None:
        """Takes in a setting that some output shows for a run."""
        if run is not None:
            self._of(run).written.setdefault(canonical(name), Value(text, line, name))

    def differences(self, run: str) -> list[Difference]:
        """Settings of the run's configuration that its launched command lacks or has otherwise."""
        one = self.runs.get(run)
        if one is None or not one.complete:
            return []
        found = []
        for name, value in one.written.items():
            if name not in REPORTED:
                continue
            there = one.launched.get(name)
            if there is None or not same_setting(value.text, there.text):
                found.append(Difference(name, value, there))
        return found

    def not_launched(self, run: str | None, name: str) -> str | None:
        """Why a configured setting is not the run's: its launched command lacks it or has another value; else None."""
        wanted = canonical(name)
        for one in self.differences(run) if run is not None else []:
            if one.name == wanted and one.launched is None:
                lines = sorted({value.line for value in self.runs[run or ""].launched.values()})
                return (
                    f"{name} stands in the configuration, and the launched command (line {lines[0]}) does not carry it"
                )
            if one.name == wanted and one.launched is not None:
                return f"the launched command has {one.launched.name} = {one.launched.text} (line {one.launched.line})"
        return None

    def between(self, first: str, second: str) -> list[tuple[str, Value, Value]]:
        """Settings in which two runs differ: as launched where both commands are known, else as written."""
        one, other = self.runs.get(first), self.runs.get(second)
        if one is None or other is None:
            return []
        left = one.launched if one.complete and other.complete else {**one.written, **one.launched}
        right = other.launched if one.complete and other.complete else {**other.written, **other.launched}
        return [
            (name, left[name], right[name])
            for name in left
            if name in right and name in SAME.values() and not same_setting(left[name].text, right[name].text)
        ]

    def _of(self, run: str) -> OneRun:
        return self.runs.setdefault(run, OneRun())

    def _config(self, path: str, text: str, line: int, known: set[str]) -> None:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return
        run = _run_of(path, text, known)
        if run is None or not isinstance(document, dict):
            return
        for name, value in document.items():
            if isinstance(name, str) and isinstance(value, int | float | str) and str(value):
                _keep(self._of(run).written, canonical(name), Value(_as_text(value), line, name))

    def _launched(self, run: str, text: str, line: int) -> None:
        one = self._of(run)
        found = overrides_in(text)
        if len(found) < MIN_OVERRIDES and not one.launched:
            one.by_file = one.by_file or bool(re.search(r"config[\w-]*\.json", text))
            return
        one.by_file = one.by_file or bool(re.search(r"config[\w-]*\.json", text))
        for name, (key, value) in found.items():
            _keep(one.launched, name, Value(value, line, key))

    def _traces(self, output: str, event: Event, known: set[str]) -> None:
        """`set -x` prints the command as it was run."""
        if "+ " not in output:
            return
        for line in lines_of(output):
            if _TRACE.match(line):
                runs = named_runs(line, known)
                if len(runs) == 1:
                    self._launched(runs[0], line, event.line)


def canonical(name: str) -> str:
    """The name that a setting is compared under."""
    lowered = name.strip().lower().replace(" ", "_").replace("-", "_")
    parts = lowered.split(".")
    if any(part.startswith("val") for part in parts[:-1]):
        return lowered
    for length in (2, 1):
        tail = ".".join(parts[-length:])
        if tail in SAME:
            return SAME[tail]
    return parts[-1] if len(parts) == 1 else lowered


def same_setting(one: str, other: str) -> bool:
    """Whether two values are the same number or word."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one.strip("'\"").lower() == other.strip("'\"").lower()


def overrides_in(text: str) -> dict[str, tuple[str, str]]:
    """Settings of a command: canonical name → (name as written, value), shell variables replaced where they are set."""
    variables = dict(_ASSIGNMENT.findall(text))
    found: dict[str, tuple[str, str]] = {}
    for pattern in (_OVERRIDE, _FLAG):
        for match in pattern.finditer(text):
            key = match["key"]
            if pattern is _OVERRIDE and "." not in key and "--" not in text:
                continue
            value = _VARIABLE.sub(lambda name: variables.get(name[1], name[0]), match["value"])
            if "$" in value:
                continue
            found.setdefault(canonical(key), (key, value.rstrip(",")))
    return found


def _keep(values: dict[str, Value], name: str, new: Value) -> None:
    """The newest value; of the same value the line that showed it first."""
    there = values.get(name)
    if there is None or not same_setting(there.text, new.text):
        values[name] = new


def _only_file(command: str) -> str | None:
    """The file that a command shows, where it shows one."""
    match = re.match(r"\A\s*(?:cat|head|tail)\b(?:\s+-\S+)*\s+(\S+)\s*(?:2>\S+)?\s*\Z", command)
    return match[1] if match is not None else None


def _run_of(path: str, text: str, known: set[str]) -> str | None:
    in_path = stated_runs(path) or set(named_runs(path, known))
    if len(in_path) == 1:
        return next(iter(in_path))
    stated = stated_runs(text)
    return next(iter(stated)) if len(stated) == 1 else None


def _as_text(value: Any) -> str:
    return repr(value) if not isinstance(value, str) else value


def settings_text(values: Iterable[tuple[str, Value, Value]], limit: int = 6) -> str:
    """`epochs 1 → 2, temperature 1.0 → 0.85`."""
    told = [f"{name} {one.text} → {other.text}" for name, one, other in values]
    more = "" if len(told) <= limit else f" and {len(told) - limit} more"
    return ", ".join(told[:limit]) + more
