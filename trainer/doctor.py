"""`mcp-evo doctor --train`: one real GRPO step of the bundled model on a device, in numbers that can be compared."""

import tempfile
import time
from pathlib import Path
from typing import Any


def one_step(device: str) -> dict[str, Any]:
    """Plays 16 calculator episodes on `device` and makes one update.

    Returns {device, ok, error, seconds, reward_mean, loss, grad_norm, logprob_mean, weight_change}; with ok false only
    device and error. logprob_mean is of fixed tokens, so devices agree on it to float32 accuracy; the sampled episodes
    may differ by a token where two probabilities nearly tie, so reward and gradient agree roughly.
    """
    try:
        return _step(device)
    except Exception as error:
        return {"device": device, "ok": False, "error": f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"}


def _step(device: str) -> dict[str, Any]:
    import torch
    import transformers

    from trainer.config import TrainingConfig
    from trainer.envs import registry
    from trainer.evaluate import limits_of
    from trainer.grpo import AgentGRPO
    from trainer.models.catalog import resolve_model
    from trainer.models.load import load
    from trainer.rollout.engine import RolloutEngine
    from trainer.tasks import build_tasks

    began = time.perf_counter()
    config = TrainingConfig.model_validate(
        {"max_steps": 1, "batch_size": 2, "problems": 8, "test_problems": 8, "validation_problems": 8, "device": device}
    )
    transformers.utils.logging.disable_progress_bar()
    transformers.set_seed(config.seed)
    spec = registry.load(config.env)
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        loaded = load(resolve_model("tiny"), device, "float32")
        fixed = torch.arange(20, 84, device=loaded.device)[None]
        with torch.no_grad():
            logits = loaded.model(input_ids=fixed).logits[0, :-1].float()
        logprob = logits.log_softmax(-1).gather(-1, fixed[0, 1:, None]).mean().item()
        before = torch.cat([p.detach().flatten().cpu() for p in loaded.model.parameters()])
        engine = RolloutEngine(loaded.model, loaded.tokenizer, spec, limits_of(config), seed=config.seed)
        trainer = AgentGRPO(
            config,
            loaded,
            build_tasks(config, spec, Path(folder)),
            engine,
            Path(folder),
            on_episodes=lambda step, episodes: None,
            on_step=lines.append,
            on_event=lambda kind, **fields: None,
            after_step=lambda step: None,
        )
        trainer.train()
        after = torch.cat([p.detach().flatten().cpu() for p in loaded.model.parameters()])
    line = lines[0]
    return {
        "device": device,
        "ok": True,
        "error": None,
        "seconds": round(time.perf_counter() - began, 2),
        "reward_mean": line.get("reward_mean"),
        "loss": line.get("loss"),
        "grad_norm": line.get("grad_norm"),
        "logprob_mean": logprob,
        "weight_change": float((after - before).norm()),
    }
