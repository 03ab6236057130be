"""LoRA adapters (extra `lora`): put on before training, merged into a copy of the weights when the model is saved."""

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
    # the inner model keeps its class and its attention function; peft only swaps linear layers in place
    return replace(loaded, model=get_peft_model(loaded.model, settings), shared_prefix=False)


def merged(model: Any) -> PreTrainedModel:
    """The model that is written to disk: adapters merged in, anything else as it is."""
    if "merge_and_unload" in dir(model):
        import copy

        whole: PreTrainedModel = copy.deepcopy(model).merge_and_unload()
        return whole
    plain: PreTrainedModel = model
    return plain
