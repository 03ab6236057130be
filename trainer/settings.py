"""From request, `--set`, `--config`, profile and policy to one `TrainingConfig`, with where each value came from.

1. Precedence, field by field: request text, `--set key=value` (or an agent's override), `--config FILE`, policy of
   `rllm-config`, profile, the default of `TrainingConfig`.
2. An amount (epochs, steps, episodes) is one thing: what the command line says about it replaces what a file says, and
   what a file says replaces what policy or profile say, all together. A budget nobody asked for never cuts a run short.
3. A value outside the policy's safe range is allowed and warned about, with the numbers.
4. Everything wrong is one `ConfigError`: what was wrong, where it came from, what is allowed, what to do.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from skill_bank.policy import CompiledPolicy, ResolvedPolicy
from trainer.config import ConfigError, TrainingConfig
from trainer.config_errors import explain_validation_error, unknown_field
from trainer.envs import registry
from trainer.experience.manager import joined
from trainer.models.catalog import ModelInfo, ModelKind, default_lora, resolve_model
from trainer.reporting import check_trackers
from trainer.request import ParsedRequest, Span, parse_request
from trainer.settings_data import absolute_files, check_env_args, check_generated_tasks, check_task_file
from trainer.settings_warnings import beside_the_config, range_warnings, sampling_warnings

AMOUNT_FIELDS = ("epochs", "max_steps", "max_episodes")
"""Fields that say how long a run is."""

PROFILES: dict[str, dict[str, Any]] = {
    "original": {
        "problems": 64,
        "epochs": 2.0,
        "learning_rate": 1e-5,
        "batch_size": 2,
        "num_generations": 4,
        "temperature": 0.7,
        "difficulty": "mixed",
        "max_completion_tokens": 256,
        "max_turns": 3,
    }
}
"""Profile → base values. `original`: the published defaults of the system this one grew from, the plain base of
demonstrations. They stand in for the defaults and for what the base of a skill says; active patches beat them."""

PUBLISHED_NAMES = {"exp_manager": "experience"}
"""Sections of published configurations → ours."""

NEAR = 0.85
"""A word this like an environment's name is taken for it misspelt: gsm8 is, "reasoning" is not reasoning_gym (0.82)."""

Source = Literal["request", "set", "override", "config", "policy", "default"]


@dataclass(frozen=True)
class Resolved:
    """A configuration that can run, and why it is as it is."""

    config: TrainingConfig
    provenance: dict[str, dict[str, Any]]
    """Field → {source: request|set|override|config|policy|default, detail, …}; policy adds skill, section, patch …"""
    model: ModelInfo
    unknown: tuple[Span, ...] = ()
    """Words of the request that were not understood."""
    warnings: tuple[str, ...] = ()
    request: ParsedRequest | None = None
    profile: str | None = None
    context: dict[str, Any] = field(default_factory=dict)
    """Policy context: {params, model, env, difficulty, lora, device}, without what is not known."""


@dataclass
class _Layer:
    """Values of one source."""

    source: Source
    values: dict[str, Any]
    details: dict[str, dict[str, Any]]


def resolve(
    request: str | None = None,
    overrides: Iterable[str] | Mapping[str, Any] | None = None,
    config_file: Path | None = None,
    policy: CompiledPolicy | None = None,
    profile: str | None = None,
    *,
    override_source: Literal["set", "override"] = "set",
    folder: Path | None = None,
) -> Resolved:
    """The configuration of a run.

    `overrides` are `key=value` texts or a mapping; `override_source` says whether a person (`set`) or an agent
    (`override`) gave them. `folder` is what relative paths are relative to (the working directory by default; paths in
    a config file are relative to that file). Raises ConfigError.
    """
    base = (folder or Path.cwd()).resolve()
    parsed = parse_request(request) if request is not None and request.strip() else None
    layers = [
        _request_layer(parsed),
        _override_layer(overrides, override_source),
        _file_layer(config_file),
    ]
    explicit = _merge(layers)
    base_values = _profile_values(profile, policy)
    model, context = _context(explicit, base_values, base, config_file)
    resolved_policy = policy.resolve(context) if policy is not None else None
    layers.append(_policy_layer(resolved_policy, base_values))
    layers.append(_profile_layer(profile, base_values))
    values, provenance = _combine(layers)
    warnings: list[str] = []
    _fit_batch(values, provenance, warnings)
    _make_paths_absolute(values, provenance, model, base, config_file)
    config = _validate(values, provenance)
    _check_environment(config, provenance)
    check_env_args(config)
    warnings += check_task_file(config, provenance)
    check_generated_tasks(config)
    warnings += range_warnings(config, provenance, resolved_policy)
    warnings += sampling_warnings(config)
    warnings += check_trackers(config)
    if parsed is not None:
        _refuse_near_environments(parsed)
        for name, value in layers[1].values.items():
            if name in layers[0].values and layers[0].values[name] != value:
                warnings.append(
                    f"{override_source} {name}={value} has no effect: the request says {layers[0].values[name]}"
                )
        warnings += beside_the_config(parsed)
        warnings += [f'not understood and ignored: "{span.text}"' for span in parsed.unknown]
    return Resolved(
        config=config,
        provenance=provenance,
        model=model,
        unknown=parsed.unknown if parsed is not None else (),
        warnings=tuple(warnings),
        request=parsed,
        profile=profile,
        context=context,
    )


def _request_layer(parsed: ParsedRequest | None) -> _Layer:
    if parsed is None:
        return _Layer("request", {}, {})
    values = parsed.values()
    if parsed.experience is not None:
        values["experience"] = None if parsed.experience == "off" else {"preset": parsed.experience}
    return _Layer("request", values, {name: {"detail": parsed.source_of(name)} for name in values})


def parse_override(text: str) -> tuple[str, Any]:
    """`key=value` → (key, value); the value is read as YAML, so `0.1`, `true`, `null` and `[1, 2]` mean what they say.

    A dotted key reaches into a mapping: `env_args.digits=2`. Raises ConfigError.
    """
    key, sign, raw = text.partition("=")
    key = key.strip().lstrip("-").replace("-", "_")
    if not sign or not key:
        raise ConfigError(f"--set {text!r} is not key=value. Write for instance --set learning_rate=1e-4.")
    try:
        value = yaml.safe_load(raw) if raw.strip() else ""
    except (yaml.YAMLError, RecursionError):
        value = raw
    return key, value


def _override_layer(overrides: Iterable[str] | Mapping[str, Any] | None, source: Literal["set", "override"]) -> _Layer:
    pairs: list[tuple[str, Any, str]] = []
    if isinstance(overrides, Mapping):
        pairs = [(str(key), value, f"{key}={value}") for key, value in overrides.items()]
    elif overrides is not None:
        pairs = [(*parse_override(text), text) for text in overrides]
    values: dict[str, Any] = {}
    details: dict[str, dict[str, Any]] = {}
    for key, value, text in pairs:
        name, _, inner = key.partition(".")
        name = PUBLISHED_NAMES.get(name, name)
        if name not in TrainingConfig.model_fields:
            raise ConfigError(unknown_field(name, "--set" if source == "set" else "overrides"))
        if inner:
            if not isinstance(values.setdefault(name, {}), dict):
                raise ConfigError(f"--set {text!r}: {name} was already given a plain value. Keep one of the two.")
            values[name] = {**values[name], inner: value}
        elif name in values and values[name] != value:
            raise ConfigError(f"{name} is set twice: {values[name]!r} and {value!r}. Keep one of them.")
        else:
            values[name] = value
        details[name] = {"detail": text}
    return _Layer(source, values, details)


def _file_layer(path: Path | None) -> _Layer:
    if path is None:
        return _Layer("config", {}, {})
    values = read_config_file(path)
    return _Layer("config", values, {name: {"detail": str(path)} for name in values})


def read_config_file(path: Path) -> dict[str, Any]:
    """The mapping in a YAML or JSON config file, its keys checked. Raises ConfigError that names file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"--config {path}: there is no such file. `mcp-evo init` writes one to begin with.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {path} cannot be read: {error}") from error
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"--config {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"--config {path} must hold `key: value` lines, not a {type(document).__name__}.")
    for theirs, ours in PUBLISHED_NAMES.items():
        if theirs in document:
            if ours in document:
                raise ConfigError(f"--config {path}: {theirs} and {ours} are the same section. Keep one of them.")
            document[ours] = document.pop(theirs)
    for name in document:
        if name not in TrainingConfig.model_fields:
            raise ConfigError(unknown_field(str(name), f"--config {path}"))
    return document


def _merge(layers: list[_Layer]) -> dict[str, Any]:
    """Field → value of the strongest layer; `layers` are in order of precedence."""
    merged: dict[str, Any] = {}
    for layer in reversed(layers):
        merged.update(layer.values)
    return merged


def _profile_values(profile: str | None, policy: CompiledPolicy | None) -> dict[str, Any]:
    """Base values of a profile; none where the policy was already compiled with it."""
    if profile is None or (policy is not None and policy.profile == profile):
        return {}
    if profile not in PROFILES:
        near = difflib.get_close_matches(profile, PROFILES, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ConfigError(
            f"unknown profile {profile!r}.{hint} Allowed: {', '.join(PROFILES)}; leave it out for the default."
        )
    return dict(PROFILES[profile])


def _context(
    explicit: dict[str, Any], base_values: dict[str, Any], folder: Path, config_file: Path | None
) -> tuple[ModelInfo, dict[str, Any]]:
    """Model and policy context, from what is known before policy is asked."""

    def value(name: str) -> Any:
        fallback = base_values.get(name, TrainingConfig.model_fields[name].default)
        return explicit.get(name, fallback)

    text = value("model")
    if not isinstance(text, str):
        raise ConfigError(f"model must be a text such as tiny, not {text!r}.")
    model = _find_model(text, folder, config_file)
    lora = value("lora")
    context: dict[str, Any] = {"params": model.params, "model": model.name, "env": value("env")}
    context["difficulty"] = value("difficulty")
    context["lora"] = lora if isinstance(lora, bool) else default_lora(model.params)
    if value("device") != "auto":
        context["device"] = value("device")
    return model, {
        key: known for key, known in context.items() if known is not None and isinstance(known, (str, int, bool))
    }


def _find_model(text: str, folder: Path, config_file: Path | None) -> ModelInfo:
    """A model named in a config file may be relative to that file."""
    if config_file is not None:
        beside = config_file.resolve().parent
        path = beside / Path(text).expanduser()
        if (text.lower().endswith(".gguf") and path.is_file()) or (path / "config.json").is_file():
            return resolve_model(text, beside)
    return resolve_model(text, folder)


def _policy_layer(policy: ResolvedPolicy | None, base_values: dict[str, Any]) -> _Layer:
    """Defaults of the policy; what its base says gives way to a profile, what a patch says does not."""
    if policy is None:
        return _Layer("policy", {}, {})
    values: dict[str, Any] = {}
    details: dict[str, dict[str, Any]] = {}
    for name in TrainingConfig.model_fields:
        key = f"{name}.default" if isinstance(policy.get(name), dict) and name not in ("env_args", "columns") else name
        value = policy.get(key)
        if value is None:
            continue
        origin = policy.provenance.get(key, {})
        if name in base_values and origin.get("patch", "base") == "base":
            continue
        values[name] = value
        where = f"{policy.skill}, section {origin.get('section')}, {origin.get('patch')}"
        details[name] = {"detail": where, **origin}
    return _Layer("policy", values, details)


def _profile_layer(profile: str | None, base_values: dict[str, Any]) -> _Layer:
    return _Layer("default", base_values, {name: {"detail": f"profile {profile}"} for name in base_values})


def _combine(layers: list[_Layer]) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Strongest value of each field with its provenance; amounts go together (rule 2 of the module)."""
    values: dict[str, Any] = {}
    provenance: dict[str, dict[str, Any]] = {}
    amount_tier: int | None = None
    for layer in layers:
        tier = {"request": 0, "set": 0, "override": 0, "config": 1}.get(layer.source, 2)
        amounts = [name for name in AMOUNT_FIELDS if layer.values.get(name) is not None]
        for name, value in layer.values.items():
            if name in values:
                if name == "experience" and isinstance(values[name], dict) and isinstance(value, dict):
                    values[name] = joined(values[name], value)
                continue
            if name in AMOUNT_FIELDS and amount_tier is not None and tier > amount_tier:
                continue
            values[name] = value
            provenance[name] = {"source": layer.source, **layer.details.get(name, {})}
        if amounts and amount_tier is None:
            amount_tier = tier
    for name in TrainingConfig.model_fields:
        provenance.setdefault(name, {"source": "default", "detail": "default of TrainingConfig"})
    return values, provenance


def _fit_batch(values: dict[str, Any], provenance: dict[str, dict[str, Any]], warnings: list[str]) -> None:
    """A batch size that nobody asked for shrinks to a small training set instead of refusing it."""
    problems = values.get("problems", TrainingConfig.model_fields["problems"].default)
    batch = values.get("batch_size", TrainingConfig.model_fields["batch_size"].default)
    asked = provenance["batch_size"]["source"] in ("request", "set", "override", "config")
    if asked or not isinstance(problems, int) or not isinstance(batch, int) or not 1 <= problems < batch:
        return
    values["batch_size"] = problems
    provenance["batch_size"] = {
        "source": "default",
        "detail": f"lowered from {batch} to the {problems} problems there are",
    }
    warnings.append(f"batch_size lowered from {batch} to {problems}: the training set has {problems} problems")


def _make_paths_absolute(
    values: dict[str, Any],
    provenance: dict[str, dict[str, Any]],
    model: ModelInfo,
    folder: Path,
    config_file: Path | None,
) -> None:
    """The worker runs in another folder, so what is stored are absolute paths."""
    if model.kind in (ModelKind.FOLDER, ModelKind.GGUF):
        values["model"] = model.location
    elif model.alias is not None:
        values["model"] = model.alias
    own = [name for name in ("env", "reward") if str(values.get(name) or "").startswith("python:")]
    if values.get("folder") is not None or own:
        from_file = config_file is not None and any(
            provenance[name]["source"] == "config" for name in (*own, "folder") if name in values
        )
        beside = config_file.resolve().parent if from_file and config_file is not None else folder
        values["folder"] = str((beside / Path(str(values.get("folder") or ".")).expanduser()).resolve())
        if not Path(values["folder"]).is_dir():
            raise ConfigError(f"folder {values['folder']} does not exist. It is where your own Python files are.")
    if isinstance(values.get("env_args"), dict):
        from_file = provenance["env_args"]["source"] == "config" and config_file is not None
        values["env_args"] = absolute_files(
            values["env_args"], config_file.resolve().parent if from_file and config_file is not None else folder
        )
    for name, hint in (
        ("data", "Give a .jsonl, .csv or .parquet file with one task a line."),
        ("generated_tasks", "Give the tasks.jsonl of a set: mcp-evo tasks list."),
    ):
        file = values.get(name)
        if isinstance(file, str) and file:
            from_file = provenance[name]["source"] == "config" and config_file is not None
            beside = config_file.resolve().parent if from_file and config_file is not None else folder
            path = beside / Path(file).expanduser()
            if not path.is_file():
                raise ConfigError(f"{name} {file!r}: there is no file {path}. {hint}")
            values[name] = str(path.resolve())


def _validate(values: dict[str, Any], provenance: dict[str, dict[str, Any]]) -> TrainingConfig:
    try:
        return TrainingConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(explain_validation_error(error, provenance)) from error


def _check_environment(config: TrainingConfig, provenance: dict[str, dict[str, Any]]) -> None:
    if config.env.startswith("python:"):
        if config.env.count(":") != 2 or not all(config.env.split(":")):
            raise ConfigError(f"env {config.env!r} does not name a class of yours; write python:module:Class.")
        return
    names = registry.names()
    if config.env not in names:
        near = difflib.get_close_matches(config.env, names, n=2)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ConfigError(
            f"unknown environment {config.env!r}.{hint} Allowed: {', '.join(names)}, "
            f"or python:module:Class for your own."
        )


def _refuse_near_environments(parsed: ParsedRequest) -> None:
    """A misspelt environment must not train another one: words that nearly name one are refused, not ignored."""
    names = registry.names()
    if "env" in parsed.values():
        return
    for span in parsed.unknown:
        for word in span.text.lower().replace("-", "_").split():
            near = difflib.get_close_matches(word, names, n=1, cutoff=NEAR)
            if near:
                raise ConfigError(
                    f'"{word}" in the request is no environment. Did you mean {near[0]}? Allowed: {", ".join(names)}, '
                    f"or --set env=python:module:Class for your own."
                )
