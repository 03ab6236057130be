"""How many tokens one backward pass may hold, from the size of the model and of the machine.

Rests on total memory, not on what is free at the moment: the same run on the same machine splits its updates in the
same way, so that it can be repeated and resumed bit for bit.
"""

from typing import Any

import psutil
import torch

from trainer.models.load import LoadedModel

MEMORY_SHARE = 1 / 8
"""Of the machine's (or the GPU's) memory for the activations of one pass; two runs may share the machine."""

MEMORY_CAP = 4 * 2**30
"""Bytes: beyond this, longer passes are not faster."""

LEAST_TOKENS = 2048
"""A pass is never planned for fewer tokens; layers are recomputed (gradient checkpointing) where they do not fit."""


def activation_bytes(config: Any, element: int = 4) -> int:
    """Bytes that the backward pass keeps for one token of a decoder: layers × (16 · hidden + 4 · inner) elements.

    Counted for a Llama layer with fused attention: inputs of two norms, of q, k, v and o, rotated q and k, residuals
    (about 16 · hidden) and gate, up, their product and activation (4 · inner). Logits are not in it.
    """
    text = config.get_text_config()
    inner = text.to_dict().get("intermediate_size") or 4 * text.hidden_size
    return int(text.num_hidden_layers * (16 * text.hidden_size + 4 * inner) * element)


def memory_of(device: torch.device) -> int:
    """Bytes of memory that the device computes in."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(psutil.virtual_memory().total)


def tokens_that_fit(loaded: LoadedModel, memory: int | None = None) -> int:
    """Tokens whose activations fit into the share of memory that one pass may take."""
    share = min(MEMORY_CAP, (memory_of(loaded.device) if memory is None else memory) * MEMORY_SHARE)
    return int(share // activation_bytes(loaded.model.config, loaded.dtype.itemsize))


def plan_pass(loaded: LoadedModel, wanted: int | None, memory: int | None = None) -> tuple[int, bool]:
    """(token budget of one pass, whether layers are recomputed in the backward pass). `wanted`: the user's budget."""
    fitting = tokens_that_fit(loaded, memory)
    budget = wanted if wanted is not None else max(LEAST_TOKENS, fitting)
    return budget, budget > fitting
