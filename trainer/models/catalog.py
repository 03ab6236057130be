"""Model names: aliases, hub ids, local folders and GGUF files, and how many parameters they have. Free of torch.

`resolve_model(text)` turns what a person writes into a `ModelInfo`, or raises one `ConfigError` that lists what is
allowed. Nothing here opens a network connection: a hub id is accepted by its shape, and the worker reports a model that
cannot be fetched.
"""

import difflib
import json
import re
import struct
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import psutil

from trainer.config import ConfigError

BUNDLED_TINY = Path(__file__).resolve().parent / "tiny"
"""Folder of the model that ships with the package."""

LORA_ABOVE_PARAMS = 300_000_000
"""Above this size full fine-tuning needs 16 bytes a parameter (weights, gradient, two AdamW moments in float32)."""

LORA_BELOW_MEMORY = 32 * 2**30
"""With less memory (bytes) than this, models above `LORA_ABOVE_PARAMS` are trained through adapters."""

MAX_HEADER_BYTES = 100 * 2**20
"""A safetensors header larger than this is refused, as in the format's own reader."""


class ModelKind(StrEnum):
    """Where a model comes from."""

    BUNDLED = "bundled"
    """Ships with the package."""
    HUB = "hub"
    """Hugging Face hub."""
    FOLDER = "folder"
    """A local folder in transformers' format."""
    GGUF = "gguf"
    """A local .gguf file."""


@dataclass(frozen=True)
class ModelInfo:
    """A model that can be trained."""

    kind: ModelKind
    location: str
    """Absolute path, or the hub id."""
    params: int | None
    """Number of parameters (tied embeddings counted once), or None where it is not known before loading."""
    alias: str | None
    """Our short name, where there is one: what policy conditions and reports use."""

    @property
    def name(self) -> str:
        """The alias, the hub id or the name of the folder or file."""
        if self.alias is not None:
            return self.alias
        return self.location if self.kind is ModelKind.HUB else Path(self.location).name

    @property
    def needs_network(self) -> bool:
        """Whether loading may have to fetch something."""
        return self.kind is ModelKind.HUB


@dataclass(frozen=True)
class CatalogEntry:
    """A model with short names."""

    aliases: tuple[str, ...]
    """The first one is the canonical alias."""
    hub_id: str | None
    """None: bundled."""
    params: int


CATALOG: tuple[CatalogEntry, ...] = (
    CatalogEntry(("tiny",), None, 860_000),
    CatalogEntry(("smollm2-135m", "smollm-135m", "smollm2"), "HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008),
    CatalogEntry(("smollm2-360m", "smollm-360m"), "HuggingFaceTB/SmolLM2-360M-Instruct", 361_821_120),
    CatalogEntry(("smollm2-1.7b", "smollm-1.7b"), "HuggingFaceTB/SmolLM2-1.7B-Instruct", 1_711_376_384),
    CatalogEntry(("qwen-0.5b", "qwen2.5-0.5b"), "Qwen/Qwen2.5-0.5B-Instruct", 494_032_768),
    CatalogEntry(("qwen2.5-1.5b", "qwen-1.5b"), "Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304),
    CatalogEntry(("qwen2.5-3b", "qwen-3b"), "Qwen/Qwen2.5-3B-Instruct", 3_085_938_688),
    CatalogEntry(("qwen2.5-7b", "qwen-7b"), "Qwen/Qwen2.5-7B-Instruct", 7_615_616_512),
    CatalogEntry(("qwen3-0.6b", "qwen-0.6b"), "Qwen/Qwen3-0.6B", 596_049_920),
    CatalogEntry(("qwen3-1.7b", "qwen-1.7b"), "Qwen/Qwen3-1.7B", 1_720_574_976),
    CatalogEntry(("qwen3-4b", "qwen-4b"), "Qwen/Qwen3-4B", 4_022_468_096),
)

_ALIASES = {alias: entry for entry in CATALOG for alias in entry.aliases}
_HUB_IDS = {entry.hub_id.lower(): entry for entry in CATALOG if entry.hub_id is not None}
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_SIZE_IN_NAME = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)\s?([mb])(?![a-z0-9])", re.IGNORECASE)


def aliases() -> list[str]:
    """The canonical short names, in catalog order."""
    return [entry.aliases[0] for entry in CATALOG]


def all_aliases() -> list[str]:
    """Every short name."""
    return list(_ALIASES)


def normalise_name(text: str) -> str:
    """Lower case, separators as one hyphen, and without the suffixes that people add: `Qwen 2.5 0.5B Instruct`."""
    name = re.sub(r"[\s_]+", "-", text.strip().lower())
    name = re.sub(r"-(instruct|chat|it)$", "", name)
    return re.sub(r"^(qwen|smollm|llama|gemma)-(\d+(?:\.\d+)?)-(?=\d)", r"\1\2-", name)


def resolve_model(text: str, folder: Path | None = None) -> ModelInfo:
    """What `text` names: an alias, a hub id, a folder with `config.json`, or a `.gguf` file.

    `folder` is what a relative path is relative to (the working directory by default). A local folder wins over a hub
    id of the same spelling, as in transformers. Raises ConfigError with the allowed values.
    """
    stripped = text.strip()
    entry = _ALIASES.get(stripped.lower()) or _ALIASES.get(normalise_name(stripped)) if stripped else None
    if entry is not None:
        return _from_entry(entry)
    path = (folder or Path.cwd()) / Path(stripped).expanduser()
    if stripped.lower().endswith(".gguf"):
        return _from_gguf(stripped, path)
    if stripped and (path / "config.json").is_file():
        return ModelInfo(ModelKind.FOLDER, str(path.resolve()), folder_params(path), None)
    if stripped.startswith((".", "/", "~")):
        what = "is a folder without config.json" if path.is_dir() else "does not exist"
        raise ConfigError(
            f"model {stripped!r}: {path} {what}. A local model is a folder in transformers' format (config.json, "
            f"*.safetensors, tokenizer.json), such as the model/ folder of a run, or a .gguf file."
        )
    if _HUB_ID.fullmatch(stripped):
        known = _HUB_IDS.get(stripped.lower())
        if known is not None:
            return _from_entry(known)
        return ModelInfo(ModelKind.HUB, stripped, params_in_name(stripped), None)
    raise ConfigError(_unknown_model(stripped))


def _from_entry(entry: CatalogEntry) -> ModelInfo:
    if entry.hub_id is None:
        params = folder_params(BUNDLED_TINY) if (BUNDLED_TINY / "config.json").is_file() else entry.params
        return ModelInfo(ModelKind.BUNDLED, str(BUNDLED_TINY), params, entry.aliases[0])
    return ModelInfo(ModelKind.HUB, entry.hub_id, entry.params, entry.aliases[0])


def _from_gguf(text: str, path: Path) -> ModelInfo:
    if not path.is_file():
        raise ConfigError(f"model {text!r}: there is no file {path}. Give the path of an existing .gguf file.")
    try:
        params = gguf_params(path)
    except (ValueError, OSError, struct.error) as error:
        raise ConfigError(f"model {text!r}: {path} cannot be read as a GGUF file: {error}") from error
    return ModelInfo(ModelKind.GGUF, str(path.resolve()), params, None)


def _unknown_model(text: str) -> str:
    near = difflib.get_close_matches(normalise_name(text), all_aliases(), n=3, cutoff=0.6)
    canonical = list(dict.fromkeys(_ALIASES[name].aliases[0] for name in near))
    hint = f" Did you mean {' or '.join(canonical)}?" if canonical else ""
    return (
        f"unknown model {text!r}.{hint} Allowed: {', '.join(aliases())}, a hub id such as "
        f"HuggingFaceTB/SmolLM2-135M-Instruct, a local folder (./my-model) or a .gguf file."
    )


def params_in_name(name: str) -> int | None:
    """Parameters as the name states them (`-1.5B-` → 1,500,000,000), or None."""
    found = _SIZE_IN_NAME.search(name.replace("_", "-").replace("/", "-"))
    if found is None:
        return None
    return round(float(found.group(1)) * {"m": 1e6, "b": 1e9}[found.group(2).lower()])


def default_lora(params: int | None, memory_bytes: int | None = None) -> bool:
    """Whether `lora: null` means adapters: above 300 M parameters on less than 32 GB (DESIGN section 5)."""
    if params is None or params <= LORA_ABOVE_PARAMS:
        return False
    available = psutil.virtual_memory().total if memory_bytes is None else memory_bytes
    return available < LORA_BELOW_MEMORY


def folder_params(folder: Path) -> int | None:
    """Parameters of a local model, from its safetensors headers, else estimated from its config.json, else None.

    A checkpoint that stores tied embeddings twice is counted once, as the loaded model has them once.
    """
    config = _read_object(folder / "config.json")
    shards = sorted(folder.glob("*.safetensors"))
    if shards:
        try:
            return _safetensors_params(shards, bool(config.get("tie_word_embeddings", False)))
        except (ValueError, OSError, struct.error):
            return config_params(config)
    return config_params(config)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _safetensors_params(shards: list[Path], tied: bool) -> int:
    """Sum of the sizes of all tensors. Format: 8 bytes little-endian header length, then a JSON header."""
    total = 0
    for shard in shards:
        with open(shard, "rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            if length > MAX_HEADER_BYTES:
                raise ValueError(f"header of {length} bytes")
            header = json.loads(stream.read(length))
        for name, tensor in header.items():
            if name == "__metadata__" or (tied and name == "lm_head.weight"):
                continue
            size = 1
            for extent in tensor["shape"]:
                size *= extent
            total += size
    return total


def config_params(config: dict[str, Any]) -> int | None:
    """Parameters of a decoder of the Llama / Qwen family, from the sizes in its config.json; None if they are missing.

    embeddings V·d (twice if not tied) + layers · (q and o: 2·d·h·k, k and v: 2·d·g·k, gated MLP: 3·d·f, two norms: 2·d)
    + the last norm d, with h heads, g key/value heads, head size k. Biases are left out (below 0.1 %).
    """
    needed = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    if not all(isinstance(config.get(key), int) and config[key] > 0 for key in needed):
        return None
    vocabulary, hidden, layers, heads, inner = (int(config[key]) for key in needed)
    key_heads = config.get("num_key_value_heads") or heads
    head_size = config.get("head_dim") or hidden // heads
    embeddings = vocabulary * hidden * (1 if config.get("tie_word_embeddings", False) else 2)
    layer = 2 * hidden * heads * head_size + 2 * hidden * key_heads * head_size + 3 * hidden * inner + 2 * hidden
    return embeddings + layers * layer + hidden


_GGUF_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""GGUF value type → bytes (8 is a string, 9 an array)."""


def gguf_params(path: Path) -> int:
    """Sum of the sizes of all tensors of a GGUF file (versions 2 and 3), read from its header only.

    Raises ValueError where the file is not GGUF.
    """
    with open(path, "rb") as stream:
        if stream.read(4) != b"GGUF":
            raise ValueError("it does not start with GGUF")
        version, tensors, pairs = struct.unpack("<IQQ", stream.read(20))
        if version not in (2, 3):
            raise ValueError(f"version {version} of the format is not supported (2 and 3 are)")
        for _ in range(pairs):
            _skip(stream, _length(stream))
            (kind,) = struct.unpack("<I", stream.read(4))
            _skip_gguf_value(stream, kind)
        total = 0
        for _ in range(tensors):
            _skip(stream, _length(stream))
            (dimensions,) = struct.unpack("<I", stream.read(4))
            if dimensions > 8:
                raise ValueError(f"a tensor with {dimensions} dimensions")
            size = 1
            for extent in struct.unpack(f"<{dimensions}Q", stream.read(8 * dimensions)):
                size *= extent
            total += size
            stream.read(12)  # type and offset
    return total


def _length(stream: BinaryIO) -> int:
    (length,) = struct.unpack("<Q", stream.read(8))
    return int(length)


def _skip(stream: BinaryIO, length: int) -> None:
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"a string of {length} bytes in the header")
    stream.seek(length, 1)


def _skip_gguf_value(stream: BinaryIO, kind: int) -> None:
    if kind in _GGUF_SCALARS:
        stream.seek(_GGUF_SCALARS[kind], 1)
    elif kind == 8:
        _skip(stream, _length(stream))
    elif kind == 9:
        (inner,) = struct.unpack("<I", stream.read(4))
        count = _length(stream)
        if inner in _GGUF_SCALARS:
            _skip(stream, _GGUF_SCALARS[inner] * count)
        else:
            for _ in range(count):
                _skip_gguf_value(stream, inner)
    else:
        raise ValueError(f"value type {kind} in the header")
