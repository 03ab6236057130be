"""The child process: trains one run directory from `config.json` to its final state.

    python -P -m trainer.worker RUN_DIR
    python -P -m trainer.worker --serve --protocol-fd N     run directories on stdin, one line each, answers on fd N
    python -P -m trainer.worker --doctor DEVICE             one real step on a device, JSON on stdout

What it guarantees: the run document ends in a final state whatever Python can still do; a model folder is complete or
absent; an update that is not finite never reaches the weights; SIGTERM and Ctrl-C end the run as `stopped`.
"""

import argparse
import json
import math
import os
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Threads that wait by spinning make every step of two runs on the same cores 10 to 20 times slower; read by the OpenMP
# runtime when torch is loaded, so before it.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import psutil

from skill_bank.files import write_json_atomic, write_text_atomic
from trainer.config import ConfigError, TrainingConfig
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import Eval, Failure, RunState, Verdict


class Stopped(BaseException):
    """Somebody asked the process to end. Not an Exception: no handler for faults may swallow it."""


_signalled: list[int] = []
"""The signals that came."""


def _on_signal(number: int, frame: FrameType | None) -> None:
    for one in (signal.SIGTERM, signal.SIGINT):  # once is enough; the last word must be written in peace
        signal.signal(one, signal.SIG_IGN)
    _signalled.append(number)
    raise Stopped(signal.Signals(number).name)


def _handle_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _on_signal)


class Session:
    """One run from start to end."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.config: TrainingConfig = directory.read_config()
        self.best: Eval | None = None
        self.validations: list[Eval] = []
        self.best_step = 0
        self._best_weights: dict[str, Any] | None = None
        self.stop_reason: str | None = None
        self.performance: dict[str, float] = {}

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

        from trainer.envs import registry
        from trainer.evaluate import Evaluator, limits_of
        from trainer.models.catalog import resolve_model
        from trainer.models.load import load
        from trainer.rollout.engine import RolloutEngine
        from trainer.tasks import build_tasks

        config = self.config
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        transformers.utils.logging.disable_progress_bar()
        transformers.set_seed(config.seed)
        folder = Path(config.folder) if config.folder else self.directory.path
        folders = (folder,) if config.folder else ()
        spec = registry.load(config.env, folders)
        self.tasks = build_tasks(config, spec, folder)
        self.reward = _reward(config, folders)
        self.loaded = load(resolve_model(config.model, folder), config.device, config.dtype)
        if config.lora:
            from trainer.models.adapters import with_adapters

            self.loaded = with_adapters(self.loaded, config.lora_rank)
        self.engine = RolloutEngine(
            self.loaded.model,
            self.loaded.tokenizer,
            spec,
            limits_of(config),
            seed=config.seed,
            reward=self.reward,
            on_turn=self.directory.beat,
        )
        self.evaluator = Evaluator(
            config, self.loaded, spec, self.tasks, reward=self.reward, on_turn=self.directory.beat
        )
        self.directory.set_fields(
            state=RunState.RUNNING,
            device=str(self.loaded.device),
            parameters=self.loaded.parameters,
            data_fingerprint=self.tasks.fingerprint,
            packages=_packages(),
        )
        self.directory.append_event(
            "started", device=str(self.loaded.device), dtype=str(self.loaded.dtype), threads=torch.get_num_threads()
        )

    def _train(self) -> None:
        from trainer.envs.base import Split
        from trainer.grpo import AgentGRPO

        config = self.config
        if not config.skip_eval_before:
            self._evaluate("before", Split.TEST)
        if self._asked_to_stop():
            raise Stopped(self.stop_reason or "user")
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
        )
        began = time.perf_counter()
        trainer.train()
        self.performance["train"] = time.perf_counter() - began
        self._restore_best()
        self._save_model()
        self._evaluate("after", Split.TEST)
        if self._asked_to_stop() and self.stop_reason != "target":
            raise Stopped(self.stop_reason or "user")

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
        if not self.config.keep_episodes:
            return
        path = self.directory.episode_path(step)
        path.parent.mkdir(exist_ok=True)
        _write_episodes(path, step, self.config.num_generations, episodes)

    def _record_step(self, line: dict[str, Any]) -> None:
        self.directory.append_metrics(line)
        self.directory.set_fields(step=line["step"])
        self.directory.beat()

    def _after_step(self, step: int) -> str | None:
        """Validation, the target, the STOP file: a reason to end, or None."""
        if self.config.validate_every and step % self.config.validate_every == 0:
            self._validate(step)
        if self._asked_to_stop():
            return self.stop_reason
        if self._target_met():
            self.stop_reason = "target"
            return self.stop_reason
        return None

    def _validate(self, step: int) -> None:
        from trainer.envs.base import Split

        result, _ = self.evaluator.run(Split.VALIDATION)
        self.validations.append(result)
        self.directory.append_event("validation", step=step, eval=result.model_dump(mode="json"))
        if self.best is None or result.mean >= self.best.mean:
            self.best, self.best_step = result, step
            self._best_weights = {k: v.detach().clone() for k, v in self.loaded.model.state_dict().items()}
            evals = {**self.directory.read_document().eval, "validation": result}
            self.directory.set_fields(eval=evals, best_step=step)

    def _target_met(self) -> bool:
        """The last two validations together lie one standard error above the target; the better of them is kept.

        One lucky validation would stop too early: with n = 64 a model of true success 0.85 shows 0.9 or more in one
        validation of seven (binomial), and a run makes many.
        """
        target, last_two = self.config.target_reward, self.validations[-2:]
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
        result, episodes = self.evaluator.run(split)
        self._check_environment(episodes)
        evals = {**self.directory.read_document().eval, name: result}
        self.directory.set_fields(eval=evals)
        self.directory.append_event("eval", name=name, eval=result.model_dump(mode="json"))
        self.performance[f"eval_{name}"] = result.seconds or 0.0
        _write_episodes(self.directory.path / f"eval-{name}.jsonl", 0, 1, episodes)

    def _restore_best(self) -> None:
        """Goes back to the weights of the best validation, where there was a worse one after it."""
        if self._best_weights is None or self.best is self.validations[-1]:
            return
        self.loaded.model.load_state_dict(self._best_weights)
        self.directory.append_event("restored", step=self.best_step)

    def _save_model(self) -> None:
        from trainer.models.adapters import merged

        temporary = self.directory.path / "model.tmp"
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


def _write_episodes(path: Path, step: int, group_size: int, episodes: list[Any]) -> None:
    rows = (_episode_line(step, number // group_size, episode) for number, episode in enumerate(episodes))
    write_text_atomic(path, "".join(f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in rows))


def _episode_line(step: int, group: int, episode: Any) -> dict[str, Any]:
    return {
        "step": step,
        "group": group,
        "generation": episode.request.generation,
        "task": episode.request.task,
        "occurrence": episode.request.occurrence,
        "prompt": episode.request.messages[-1].get("content"),
        "row": episode.request.row,
        "messages": episode.messages,
        "completion_ids": episode.completion_ids,
        "mask": episode.mask,
        "logprobs": [round(v, 5) for v in episode.logprobs],
        "reward": episode.reward,
        "valid": episode.valid,
        "stop_reason": episode.stop_reason.value,
        "turns": episode.turns,
        "tool_calls": episode.tool_calls,
        "tool_errors": episode.tool_errors,
        "parse_errors": episode.parse_errors,
        "error": episode.error,
        "seconds": round(episode.seconds, 4),
    }


def _reward(config: TrainingConfig, folders: tuple[Path, ...]) -> Any:
    if config.reward is None:
        return None
    from trainer.envs.registry import load_object

    function = load_object(config.reward, folders)
    if not callable(function):
        raise ConfigError(
            f"reward {config.reward} is not a function; it must be function(episode, environment) -> float."
        )
    return function


def _packages() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("mcp-evo", "torch", "transformers", "trl", "numpy")}


def failure_of(error: BaseException) -> Failure:
    """The class of a failure by the exception's type, never by its text."""
    import errno

    kind = type(error).__name__
    message = " ".join(str(error).split()) or kind
    known = {
        "ModelFault": "model",
        "TemplateFault": "model",
        "EnvironmentFault": "environment",
        "DataFault": "data",
        "ConfigError": "config",
        "NonFinite": "nonfinite",
        "MemoryError": "oom",
        "OutOfMemoryError": "oom",
    }
    if kind in known:
        kind = known[kind]
    elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        kind = "disk_full"
        message = f"the disk is full ({error.filename or 'run directory'}). Free space and start the run again."
    if kind == "oom":
        message = (
            f"out of memory ({message[:200]}). Use fewer or shorter episodes (batch_size, num_generations, "
            "max_completion_tokens), or lora=true."
        )
    return Failure(kind=kind, message=message)


def train_directory(path: Path) -> int:
    """Runs one directory to its final state. Returns an exit status: 0 ended by itself or stopped, 1 failed."""
    directory = RunDirectory(path)
    try:
        session = Session(directory)
        session.run()
        session.conclude()
    except Stopped as stopped:
        reason = directory.stop_reason() or str(stopped)
        directory.append_event("stopped", reason=reason)
        directory.finish(RunState.STOPPED, stop_reason=reason)
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        failure = failure_of(error)
        failure.log_tail = directory.log_tail()
        failure.exit_code = 1
        try:
            directory.write_failure(failure)
            directory.append_event("failed", kind_of_failure=failure.kind, message=failure.message)
            directory.finish(RunState.FAILED, failure=failure)
        except OSError:
            traceback.print_exc()
        return 1
    return 0


def _silence_libraries() -> None:
    import logging
    import warnings

    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def serve(protocol: int) -> int:
    """A warm worker: imports first, then runs one directory after another, in this process."""
    import trl  # noqa: F401 - the point of a warm worker

    import trainer.grpo  # noqa: F401

    with os.fdopen(protocol, "w", buffering=1) as answers:
        answers.write("ready\n")
        for line in sys.stdin:
            path = line.strip()
            if not path:
                continue
            status = train_directory(Path(path))
            answers.write(f"{'done' if status == 0 else 'failed'} {path}\n")
            if _signalled:  # the signal meant the process, not only its run
                break
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -P -m trainer.worker", description="Trains a run directory.")
    parser.add_argument("run_dir", nargs="?", type=Path)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--protocol-fd", type=int)
    parser.add_argument("--doctor", metavar="DEVICE")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    _handle_signals()
    if arguments.doctor:
        from trainer.doctor import one_step

        print(json.dumps(one_step(arguments.doctor)))
        return 0
    _silence_libraries()
    if arguments.serve:
        if arguments.protocol_fd is None:
            parser.error("--serve needs --protocol-fd")
        try:
            return serve(arguments.protocol_fd)
        except Stopped:  # while it waited for work
            return 0
    if arguments.run_dir is None:
        parser.error("a run directory is needed")
    directory = RunDirectory(arguments.run_dir.absolute())
    # the launcher writes it too, but may die in between
    directory.set_fields(pid=os.getpid(), process_started_at=psutil.Process().create_time())
    return train_directory(directory.path)


if __name__ == "__main__":
    sys.exit(main())
