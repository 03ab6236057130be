"""GGUF files: converted once to a folder in transformers' format, which every later run reads.

transformers marks a model from a GGUF file as quantised: it refuses to train or save it, although its weights are plain
numbers by then, and reading takes half a minute even for 135 M parameters (the header is parsed three times). So the
first run writes the converted model to the user's cache; the folder may be deleted at any time.
"""

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel, PreTrainedTokenizerBase


def cache_folder(path: Path, dtype: torch.dtype) -> Path:
    """Where the converted file is kept: another file, another date, another precision or another transformers are
    another folder."""
    state = path.stat()
    key = f"{path.resolve()}|{state.st_size}|{state.st_mtime_ns}|{dtype}|{transformers.__version__}"
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "mcp-evo" / "gguf" / f"{path.stem}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def read_gguf(path: Path, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer, from the cache where they are there. Raises what transformers raises, ImportError without
    the package `gguf`."""
    folder = cache_folder(path, dtype)
    if not (folder / "config.json").is_file():
        model, tokenizer = convert(path, dtype)
        if not _keep(model, tokenizer, folder):
            return model, tokenizer
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype), AutoTokenizer.from_pretrained(folder)


def convert(path: Path, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The file as a model that can be trained and saved."""
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=dtype, quantization_config=GgufConfig(dequantize=True)
    )
    model.hf_quantizer = None  # what makes `is_quantized` true; nothing of the model is
    vars(model.config).pop("quantization_config", None)
    return model, AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def _keep(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> bool:
    """Writes the folder whole or not at all; False where there is no place for it."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    except OSError:
        return False
    try:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        os.replace(temporary, folder)
    except OSError:  # no space, or another process was faster
        return (folder / "config.json").is_file()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True
