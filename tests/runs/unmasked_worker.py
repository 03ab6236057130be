"""The worker with a fault that no configuration can make: its loss mask is 1 everywhere."""

import sys
from typing import Any

import trainer.grpo
from trainer.worker import main

_rollout = trainer.grpo.AgentGRPO.rollout


def unmasked(self: Any, prompts: list[Any], owner: Any) -> dict[str, Any]:
    """The rollout, with the environment's tokens marked as the model's."""
    output = _rollout(self, prompts, owner)
    output["env_mask"] = [[1] * len(mask) for mask in output["env_mask"]]
    return output


if __name__ == "__main__":
    trainer.grpo.AgentGRPO.rollout = unmasked
    sys.exit(main())
