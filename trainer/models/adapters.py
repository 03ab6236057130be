"""LoRA adapters (extra `lora`): put on before training, merged into a copy of the weights when the model is saved.

peft swaps linear layers of the model in place and puts a wrapper around it, whose forward pass only calls the model's
(prompt tuning and mixed adapter batches, which we do not use, are what it does more). So the model inside the wrapper
computes exactly the same with a forward pass of its own, shared prefixes included.
"""

import copy
from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel

from trainer.models.load import LoadedModel, ModelFault


def with_adapters(loaded: LoadedModel, rank: int) -> LoadedModel:
    """The model with trainable rank-`rank` adapters on all linear layers, dropout 0 (old and new log-probabilities of
    one update must agree). Raises ModelFault where peft is not installed."""
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ModelFault("lora=true needs the extra `lora`: pip install 'mcp-evo[lora]'.") from error
    settings = LoraConfig(
        r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return replace(loaded, model=get_peft_model(loaded.model, settings))


def unwrapped(model: Any) -> PreTrainedModel:
    """The transformers model inside peft's wrapper, with the adapters active in its layers; or the model itself."""
    inner: PreTrainedModel = model if isinstance(model, PreTrainedModel) else model.get_base_model()
    return inner


def merged(model: Any) -> PreTrainedModel:
    """The model that is written to disk: adapters merged into a copy, anything else as it is."""
    if isinstance(model, PreTrainedModel):
        return model
    whole: PreTrainedModel = copy.deepcopy(model).merge_and_unload()
    return whole
