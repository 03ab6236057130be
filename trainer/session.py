"""One run in a worker: load, test, train with validations and checkpoints, keep the best weights, test again."""

import math
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skill_bank.files import write_json_atomic
from trainer import parallel, reporting
from trainer.config import ConfigError, TrainingConfig
from trainer.rollout.episode_file import write_episodes
from trainer.runs import checkpoints, disk
from trainer.runs.checkpoints import CheckpointState, Validation, best_of
from trainer.runs.detectors.feed import RunWatch
from trainer.runs.event_file import EventFile, scalars_of
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunDocument, RunState, Verdict
from trainer.worker_log import say

if TYPE_CHECKING:
    from trainer.credit import StepCredit
    from trainer.experience.step_labels import EndpointLabels
    from trainer.experience.training import ExperienceRun
    from trainer.trackers import Tracker

MODEL_STAGING = "model.tmp"
"""Where the model is written before it takes its name."""

CHECKPOINT_BYTES = 16
"""A trained parameter in a checkpoint: the weight, two moments of Adam, the best weight, in float32."""


class Stopped(BaseException):
    """Somebody asked the process to end. Not an Exception: no handler for faults may swallow it."""


class Bystander(RunDirectory):
    """A run directory as ranks other than the first see it: they read it, rank 0 writes it."""

    def set_fields(self, **fields: Any) -> RunDocument:
        return self.read_document()

    def append_event(self, kind: str, **fields: Any) -> None:
        return

    def append_metrics(self, row: dict[str, Any]) -> None:
        return

    def beat(self) -> None:
        return


class Session:
    """One run, from its start or from its newest checkpoint to its end."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory if parallel.is_main() else Bystander(directory.path)
        self.config: TrainingConfig = directory.read_config()
        self.watch = RunWatch(directory)
        self.curves = EventFile(directory.path)
        self._trackers: list[Tracker] = []
        self.validations: list[Validation] = []
        self.experience: ExperienceRun | None = None
        self.labels: EndpointLabels | None = None
        self._best_weights: dict[str, Any] | None = None
        self.stop_reason: str | None = None
        self.performance: dict[str, float] = {}
        self._keep_free_mb = directory.read_document().keep_free_mb
        self._disk_low: disk.DiskFull | None = None

    def run(self) -> None:
        """Trains and evaluates. Raises what went wrong; `finish` turns it into the run's last word."""
        began = time.perf_counter()
        self.directory.set_fields(
            state=RunState.STARTING, started_at=time.time(), planned_steps=self.config.planned_steps
        )
        self.directory.beat()
        self._prepare()
        self.performance["load"] = time.perf_counter() - began
        self._train()

    def _prepare(self) -> None:
        import torch
        import transformers

        from trainer.evaluate import Evaluator, limits_of
        from trainer.models.catalog import resolve_model
        from trainer.models.load import load
        from trainer.rollout.engine import RolloutEngine
        from trainer.world import open_world

        config = self.config
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        elif parallel.world_size() > 1:  # the launcher of several processes gives each of them one
            torch.set_num_threads(max(1, (os.cpu_count() or 1) // parallel.world_size()))
        transformers.utils.logging.disable_progress_bar()
        transformers.set_seed(config.seed)
        say(f"loading environment {config.env} and model {config.model}")
        world = open_world(config, self.directory.path)
        self.spec, self.reward = world.spec, world.reward
        self.tasks = world.tasks(config)
        self.loaded = load(resolve_model(config.model, world.folder), config.device, config.dtype)
        if config.lora:
            from trainer.models.adapters import with_adapters

            self.loaded = with_adapters(self.loaded, config.lora_rank)
        self.engine = RolloutEngine(
            self.loaded.model,
            self.loaded.tokenizer,
            self.spec,
            limits_of(config),
            seed=config.seed,
            reward=self.reward,
            on_turn=self.directory.beat,
            top_p=config.top_p,
            top_k=config.top_k,
        )
        self.evaluator = Evaluator(
            config, self.loaded, self.spec, self.tasks, reward=self.reward, on_turn=self.directory.beat
        )
        if config.learns_from_experience:
            self.experience = self._open_experience()
        self.directory.set_fields(
            state=RunState.RUNNING,
            device=str(self.loaded.device),
            parameters=self.loaded.parameters,
            data_fingerprint=self.tasks.fingerprint,
            packages=_packages(),
            **({} if self.tasks.mixture is None else {"generated_tasks": self.tasks.mixture.document()}),
        )
        self.directory.append_event(
            "started", device=str(self.loaded.device), dtype=str(self.loaded.dtype), threads=torch.get_num_threads()
        )

    def _train(self) -> None:
        from trainer.grpo import AgentGRPO

        config = self.config
        if reporting.external(config) and parallel.is_main():
            from trainer.trackers import trackers_of

            self._trackers = trackers_of(config, self.directory.path, self.directory.append_event)
        checkpoint = self._go_on_from()
        if parallel.is_main():
            self._before(checkpoint)
        if self.experience is not None and checkpoint is None and self._fill_pool(self.experience):
            return
        trainer = AgentGRPO(
            config,
            self.loaded,
            self.tasks,
            self.engine,
            self.directory.path,
            on_episodes=self._record_episodes,
            on_step=self._record_step,
            on_event=self.directory.append_event,
            after_step=self._after_step,
            on_checkpoint=self._complete_checkpoint,
            credit=self._credit(),
            experience=self.experience,
            trackers=self._trackers,
        )
        began = time.perf_counter()
        say(f"training, {config.planned_steps} steps at most" + (f", from {checkpoint.name}" if checkpoint else ""))
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        self.performance["train"] = time.perf_counter() - began
        self._close_experience()
        self._close_labels()
        if self._disk_low is not None:
            raise self._disk_low
        if parallel.is_main():
            self._after()

    def _before(self, checkpoint: Path | None) -> None:
        from trainer.envs.base import Split

        config = self.config
        if checkpoint is None and not config.skip_eval_before:  # a trial's scenarios were looked at before
            self._preflight()
        if not config.skip_eval_before and "before" not in self.directory.read_document().eval:
            self._evaluate("before", Split.TEST)
        if self._asked_to_stop():
            raise Stopped(self.stop_reason or "user")

    def _after(self) -> None:
        from trainer.envs.base import Split

        self._restore_best()
        self._save_model()
        self._evaluate("after", Split.TEST)
        if self.stop_reason in (None, "target"):  # done: nobody will go on from here
            shutil.rmtree(self.directory.path / "checkpoints", ignore_errors=True)
        if self._asked_to_stop() and self.stop_reason != "target":
            raise Stopped(self.stop_reason or "user")

    def _preflight(self) -> None:
        """Says what will hold the run back before it costs anything; ends it where it cannot work at all."""
        from trainer.models.preflight import preflight, refuse

        began = time.perf_counter()
        notices = preflight(self.config, self.loaded, self.spec, self.tasks, self.engine)
        self.performance["preflight"] = time.perf_counter() - began
        for notice in notices:
            self.directory.append_event("preflight", **notice.fields())
        refuse(notices)

    def _credit(self) -> "StepCredit | None":
        from trainer.credit import StepCredit
        from trainer.experience.config import settings_of
        from trainer.experience.run_pool import workspace_of
        from trainer.experience.step_labels import labels_of_settings

        config = self.config
        if config.step_credit == "off":
            return None
        self.labels = labels_of_settings(settings_of(workspace_of(self.directory.path)))
        return StepCredit(config.step_credit, config.step_credit_alpha, config.num_generations, self.labels)

    def _close_labels(self) -> None:
        """Says how many episodes a service labelled, and why others keep their ordinary advantage."""
        if self.labels is None or not parallel.is_main():
            return
        self.directory.set_fields(step_labels=self.labels.document())
        lost = sum(self.labels.reasons.values())
        if lost:
            last = f" ({self.labels.last_problem})" if self.labels.last_problem else ""
            text = f"step credit: {lost} of {lost + self.labels.labelled} episodes got no labels from the service{last}"
            self.directory.append_event("warning", text=text)

    # ---- experience

    def _open_experience(self) -> "ExperienceRun":
        from trainer.experience.run_pool import RunPool
        from trainer.experience.training import ExperienceRun

        config = self.config
        assert config.experience is not None
        system = config.system_prompt or self.spec.system_prompt
        pool = RunPool(config.experience, self.directory.path, config.env)
        return ExperienceRun(config, self.tasks, pool, self.directory.run_id, system)

    def _fill_pool(self, experience: "ExperienceRun") -> bool:
        """Fills the pool where the run does that; True: the run was for nothing else."""
        if not experience.settings.init_exp_before_training:
            return False
        say("filling the experience pool from training problems")
        filled = experience.fill(lambda requests: self.engine.run(requests, self.config.temperature))
        self.performance["fill_pool"] = filled.seconds
        self.directory.append_event("experience_filled", **vars(filled))
        if self._asked_to_stop():
            self._close_experience()
            raise Stopped(self.stop_reason or "user")
        if experience.settings.init_exp_only:
            self.stop_reason = "init_exp_only"
            self._close_experience()
        return experience.settings.init_exp_only

    def _close_experience(self) -> None:
        if self.experience is None:
            return
        self.experience.close()
        document = self.experience.document()
        self.directory.set_fields(experience=document)
        self.directory.append_event("experience", **document)
        for text in self.experience.troubles():
            self.directory.append_event("warning", text=text)

    # ---- checkpoints

    def _go_on_from(self) -> Path | None:
        """The checkpoint that lies in the run directory (resume puts it there), with our part of the state restored."""
        found = checkpoints.complete_checkpoints(self.directory.path / "checkpoints")
        if not found:
            return None
        folder, state = found[0], checkpoints.read_state(found[0])
        assert state is not None
        if state.data_fingerprint not in (None, self.tasks.fingerprint):
            raise ConfigError(
                f"the problems are not those of the run that wrote {folder.name}: the data file has changed, or the "
                "environment's generator has. Put them back, or start a new run."
            )
        self.validations = list(state.validations)
        if parallel.is_main():
            self._retrace_curves()
        if (folder / checkpoints.BEST_FILE).exists():
            import torch

            self._best_weights = torch.load(folder / checkpoints.BEST_FILE, weights_only=True)
        return folder

    def _retrace_curves(self) -> None:
        """What the resumed run measured: the new one's event file begins where that began."""
        for row in self.directory.metrics():
            self.curves.add(row["step"], scalars_of(row))
        for one in self.validations:
            self.curves.add(one.step, {"success/validation": one.result.mean})

    def _complete_checkpoint(self, step: int, folder: Path) -> None:
        """Adds our part of the state to what transformers wrote."""
        if self._best_weights is not None:
            import torch

            torch.save(self._best_weights, folder / checkpoints.BEST_FILE)
        state = CheckpointState(
            step=step,
            config_hash=self.directory.read_document().config_hash,
            data_fingerprint=self.tasks.fingerprint,
            validations=self.validations,
        )
        checkpoints.complete(folder, state)
        self.directory.append_event("checkpoint", step=step)

    # ---- what TRL's loop calls

    def _check_environment(self, episodes: list[Any]) -> None:
        """Raises EnvironmentFault where no episode at all is evidence: there is nothing to learn from or to report."""
        from trainer.envs.base import EnvironmentFault

        if any(episode.valid for episode in episodes):
            return
        raise EnvironmentFault(
            f"environment {self.config.env} failed in every one of {len(episodes)} episodes; the first one said: "
            f"{episodes[0].error}. Mend the environment (or the reward) and start again."
        )

    def _record_episodes(self, step: int, episodes: list[Any]) -> None:
        self._check_environment(episodes)
        if not self.config.keep_episodes or not parallel.is_main():
            return
        path = self.directory.episode_path(step)
        path.parent.mkdir(exist_ok=True)
        write_episodes(path, step, self.config.num_generations, episodes)

    def _record_step(self, line: dict[str, Any]) -> None:
        self.directory.append_metrics(line)
        self._show(line["step"], scalars_of(line))
        self.directory.set_fields(step=line["step"])
        self.directory.beat()

    def _show(self, step: int, values: dict[str, float]) -> None:
        """Gives scalars to the event file and the trackers; says it once where the file cannot be written."""
        if not parallel.is_main():
            return
        for tracker in self._trackers:
            tracker.remember(values)
        if self.curves.problem is None:
            self.curves.add(step, values)
            if self.curves.problem is not None:
                self.directory.append_event("warning", text=f"no more TensorBoard curves: {self.curves.problem}")

    def _after_step(self, step: int) -> str | None:
        """Validation, the target, the STOP file, the disk: a reason to end, or None."""
        if self.config.validate_every and step % self.config.validate_every == 0:
            self._validate(step)
        critical = self.watch.record()
        if critical is not None and self.config.auto_stop:
            self.directory.request_stop(f"anomaly: {critical.name}")
        if self._asked_to_stop():
            return self.stop_reason
        if self._target_met():
            self.stop_reason = "target"
            return self.stop_reason
        if self._disk_is_low():
            self.stop_reason = "disk_full"
            return self.stop_reason
        return None

    def _disk_is_low(self) -> bool:
        """Whether the run has to end for want of space; a checkpoint is written on the way where it fits.

        Raises DiskFull where not even that fits: the checkpoints before it stay.
        """
        if self._keep_free_mb is None:
            return False
        try:
            disk.require_free(self.directory.path, self._keep_free_mb)
        except disk.DiskFull as error:
            self.directory.append_event("disk_low", message=str(error))
            trained = sum(one.numel() for one in self.loaded.model.parameters() if one.requires_grad)
            needed_mb = (trained * CHECKPOINT_BYTES + self.loaded.parameters * 4) // 2**20
            if disk.free_mb(self.directory.path) < 2 * needed_mb:
                raise
            self._disk_low = error
            return True
        return False

    def _validate(self, step: int) -> None:
        from trainer.envs.base import Split

        result, _ = self.evaluator.run(Split.VALIDATION)
        latest = Validation(step=step, result=result)
        self.validations.append(latest)
        self.directory.append_event("validation", step=step, eval=result.model_dump(mode="json"))
        self._show(step, {"success/validation": result.mean})
        if self.experience is not None and self.experience.settings.validates:
            guided, _ = self.evaluator.run(Split.VALIDATION, self.experience.for_validation)
            self.directory.append_event("validation_with_experience", step=step, eval=guided.model_dump(mode="json"))
            self._show(step, {"success/validation_with_experience": guided.mean})
        if best_of(self.validations) is latest:
            self._best_weights = self._trained_weights()
            evals = {**self.directory.read_document().eval, "validation": result}
            self.directory.set_fields(eval=evals, best_step=step)

    def _trained_weights(self) -> dict[str, Any]:
        """A copy of what training changes: all weights, or the adapters'."""
        parameters = self.loaded.model.named_parameters()
        return {name: value.detach().clone() for name, value in parameters if value.requires_grad}

    def _target_met(self) -> bool:
        """The last two validations together lie one standard error above the target; the better of them is kept.

        One lucky validation would stop too early: with n = 64 a model of true success 0.85 shows 0.9 or more in one
        validation of seven (binomial), and a run makes many.
        """
        target, last_two = self.config.target_reward, [one.result for one in self.validations[-2:]]
        if target is None or len(last_two) < 2:
            return False
        n = sum(v.n for v in last_two)
        mean = sum(v.mean * v.n for v in last_two) / n
        return mean - math.sqrt(mean * (1 - mean) / n) >= target

    def _asked_to_stop(self) -> bool:
        reason = self.directory.stop_reason()
        if reason is not None and self.stop_reason is None:
            self.stop_reason = reason
            self.directory.append_event("stop_requested", reason=reason)
        return reason is not None

    # ---- results

    def _evaluate(self, name: str, split: Any) -> None:
        say(f"testing: {name}")
        result, episodes = self.evaluator.run(split)
        self._check_environment(episodes)
        evals = {**self.directory.read_document().eval, name: result}
        self.directory.set_fields(eval=evals)
        self.directory.append_event("eval", name=name, eval=result.model_dump(mode="json"))
        self.performance[f"eval_{name}"] = result.seconds or 0.0
        write_episodes(self.directory.path / f"eval-{name}.jsonl", 0, 1, episodes)

    def _restore_best(self) -> None:
        """Goes back to the weights of the best validation, where there was a worse one after it."""
        best = best_of(self.validations)
        if self._best_weights is None or best is None or best is self.validations[-1]:
            return
        self.loaded.model.load_state_dict(self._best_weights, strict=False)  # tied weights have one name
        self.directory.append_event("restored", step=best.step)

    def _save_model(self) -> None:
        from trainer.models.adapters import merged

        say("saving the model")
        temporary = self.directory.path / MODEL_STAGING
        shutil.rmtree(temporary, ignore_errors=True)
        merged(self.loaded.model).save_pretrained(temporary)
        self.loaded.tokenizer.save_pretrained(temporary)
        shutil.rmtree(self.directory.model_folder, ignore_errors=True)
        os.replace(temporary, self.directory.model_folder)
        self.directory.append_event("model", path="model")

    def conclude(self) -> None:
        """The last word of a run that ended by itself."""
        document = self.directory.read_document()
        target = self.config.target_reward
        after = document.eval.get("after")
        if target is None or after is None:
            verdict = Verdict.NO_GOAL
        else:
            verdict = Verdict.GOAL_REACHED if after.mean >= target else Verdict.GOAL_MISSED
        write_json_atomic(self.directory.path / "perf.json", {k: round(v, 3) for k, v in self.performance.items()})
        self.directory.append_event("finished", verdict=verdict.value, reason=self.stop_reason or "budget")
        self.directory.finish(RunState.FINISHED, verdict=verdict, stop_reason=self.stop_reason or "budget")


def _packages() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("mcp-evo", "torch", "transformers", "trl", "numpy")}
