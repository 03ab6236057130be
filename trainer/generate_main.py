"""The child process that makes a set of tasks: carries out the plan of a folder, from where an earlier one was stopped.

    python -P -m trainer.generate_main FOLDER

Only the policy explorer needs torch. The user's environment is loaded here and nowhere else.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in trainer.worker: read when torch is loaded

from filelock import Timeout

from skill_bank.files import lock_of
from trainer.experience.slots import needed
from trainer.experience.trajectories import trajectory_of
from trainer.generation.folder import ProgressFile, SetFolder
from trainer.generation.produce import Policy, Producer, originals_of
from trainer.generation.types import FULL_REWARD, Attempt, Explorer, FoundBy, GenerationPlan, Manifest
from trainer.world import World, open_world


def policy_of(plan: GenerationPlan, world: World) -> Policy:
    """A model that plays originals. Raises ModelFault, EnvironmentFault, DataFault."""
    import torch
    import transformers

    from trainer.evaluate import limits_of
    from trainer.models.catalog import resolve_model
    from trainer.models.load import load
    from trainer.rollout.engine import RolloutEngine
    from trainer.rollout.episode_file import episode_line
    from trainer.tasks import group_requests

    config = plan.config
    assert plan.model is not None
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    transformers.utils.logging.disable_progress_bar()
    transformers.set_seed(plan.seed)
    loaded = load(resolve_model(plan.model, world.folder), config.device, config.dtype)
    system = config.system_prompt or world.spec.system_prompt
    engine = RolloutEngine(
        loaded.model,
        loaded.tokenizer,
        world.spec,
        limits_of(config),
        seed=plan.seed,
        reward=world.reward,
        top_p=config.top_p,
        top_k=config.top_k,
    )
    rows = originals_of(plan, world).train

    def play(numbers: Sequence[int]) -> dict[int, list[Attempt]]:
        """Attempts of the policy that won, each way once, without calls that led to nothing."""
        asked = [one for number in numbers for one in group_requests(rows[number], system, number, 0, plan.attempts)]
        found: dict[int, list[Attempt]] = {number: [] for number in numbers}
        for request, episode in zip(asked, engine.run(asked, config.temperature), strict=True):
            attempt = trajectory_of(episode_line(0, request.task, episode))
            if attempt is None or not episode.valid or episode.reward < FULL_REWARD:
                continue
            calls = tuple(needed(attempt.calls))
            if calls and all(one.calls != calls for one in found[request.task]):
                place = f"episode {request.generation}"
                found[request.task].append(Attempt(request.task, FoundBy.POLICY, place, calls))
        return found

    return play


def generate(folder: SetFolder) -> Manifest:
    """Carries out the plan of a folder. Raises what the environment, the data, the model or the plan raise."""
    plan = folder.read_plan()
    world = open_world(plan.config, folder.path)
    tell = ProgressFile(folder)
    tell("loading", 0, 1)
    policy = policy_of(plan, world) if plan.explorer is Explorer.POLICY else None
    return Producer(folder, plan, world, tell, policy).run()


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 with a set written, 1 with a failure written."""
    parser = argparse.ArgumentParser(prog="trainer.generate_main", description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = SetFolder(parser.parse_args(arguments).folder.absolute())
    try:
        with lock_of(folder.plan_path).acquire(timeout=0):  # one process at a time
            generate(folder)
    except Timeout:
        print("another process works on this set", file=sys.stderr)
        return 1
    except Exception as error:
        from trainer.last_words import note_failure

        note_failure(folder, error)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
