"""From a ModelInfo to a model and tokenizer that can be trained. Raises ModelFault with the next step."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from trainer.models.catalog import ModelInfo, ModelKind
from trainer.models.gguf import read_gguf
from trainer.models.shared_prefix import install
from trainer.models.templates import TemplateFault, fallback_template


class ModelFault(Exception):
    """A model that cannot be loaded: says why and what else can be used."""


@dataclass(frozen=True)
class LoadedModel:
    """What training needs of a model."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    device: torch.device
    dtype: torch.dtype
    parameters: int
    shared_prefix: bool
    """Whether prefixes are computed once (see models/shared_prefix.py)."""


def pick_device(wanted: str) -> torch.device:
    """`auto`: cuda, else mps, else cpu. Raises ModelFault where the named device is not there."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if wanted == "auto":
        return torch.device(next(name for name in ("cuda", "mps", "cpu") if there[name]))
    if not there[wanted]:
        available = ", ".join(name for name, present in there.items() if present)
        raise ModelFault(f"device {wanted} is not available on this machine; available: {available}. Use device=auto.")
    return torch.device(wanted)


def pick_dtype(wanted: str, device: torch.device) -> torch.dtype:
    """`auto`: bfloat16 on CUDA devices that have it, else float32."""
    if wanted != "auto":
        dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
        return dtypes[wanted]
    return torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32


def load(info: ModelInfo, device: str = "auto", dtype: str = "auto") -> LoadedModel:
    """Loads weights and tokenizer."""
    where = pick_device(device)
    kind = pick_dtype(dtype, where)
    if info.kind is not ModelKind.HUB:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        model, tokenizer = _read(info, kind)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise ModelFault(_advice(info, error)) from error
    if not tokenizer.chat_template:  # set on the tokenizer, so that it is saved with the trained model
        try:
            tokenizer.chat_template = fallback_template(tokenizer)
        except TemplateFault as fault:
            raise ModelFault(str(fault)) from fault
    if tokenizer.pad_token_id is None:  # padding is masked everywhere, so its id only has to exist
        tokenizer.pad_token_id = tokenizer.eos_token_id
    model.config.use_cache = False
    model.to(where)
    return LoadedModel(model, tokenizer, where, kind, model.num_parameters(), install(model))


def _read(info: ModelInfo, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    if info.kind is ModelKind.GGUF:
        return read_gguf(Path(info.location), dtype)
    model = AutoModelForCausalLM.from_pretrained(info.location, dtype=dtype)
    return model, AutoTokenizer.from_pretrained(info.location)


def _advice(info: ModelInfo, error: Exception) -> str:
    reason = " ".join(str(error).split())[:300]
    if info.kind is ModelKind.HUB:
        return (
            f"model {info.name} could not be fetched from the Hugging Face hub and is not in the local cache "
            f"({reason}). Check the network and the name, download it beforehand and give its folder "
            "(model=/path/to/folder), or use model=tiny, which ships with the package."
        )
    if info.kind is ModelKind.GGUF and isinstance(error, ImportError):
        return "reading a .gguf model needs the extra `gguf`: pip install 'mcp-evo[gguf]'."
    return f"model {info.name} at {info.location} could not be loaded: {type(error).__name__}: {reason}."
