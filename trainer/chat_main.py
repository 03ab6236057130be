"""The child process of a chat: loads one model, answers questions until its stdin ends.

    python -P -m trainer.chat_main PLAN.json --protocol-fd N

Questions are JSON lines on stdin (`ChatQuestion`), replies JSON lines on the given handle (`ChatReply`): what libraries
print on stdout can never be taken for an answer.
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in trainer.worker: read when torch is loaded

from skill_bank.files import read_json
from trainer.config import ConfigError
from trainer.evaluate import limits_of
from trainer.evaluation.chat_types import ChatAnswer, ChatPlan, ChatQuestion, ChatReply
from trainer.models.catalog import resolve_model
from trainer.models.load import LoadedModel, load
from trainer.rollout.engine import RolloutEngine
from trainer.rollout.types import EpisodeRequest, Message, StopReason
from trainer.tasks import conversation, requests
from trainer.world import World, open_world


@dataclass
class Chat:
    """One model in one environment."""

    plan: ChatPlan
    world: World
    loaded: LoadedModel

    def __post_init__(self) -> None:
        self.engine = RolloutEngine(
            self.loaded.model,
            self.loaded.tokenizer,
            self.world.spec,
            limits_of(self.plan.config),
            seed=self.plan.config.seed,
            reward=self.world.reward,
        )
        self.system_prompt = self.plan.config.system_prompt or self.world.spec.system_prompt

    def answer(self, question: ChatQuestion) -> ChatAnswer:
        """Plays one episode. Raises DataFault, ConfigError."""
        began = time.perf_counter()
        request = self._request(question)
        (episode,) = self.engine.run([request], self.plan.temperature)
        shown = len(request.messages)
        graded = question.problem is not None and episode.stop_reason is not StopReason.ENVIRONMENT_ERROR
        return ChatAnswer(
            prompt=episode.messages[:shown],
            messages=episode.messages[shown:],
            stop_reason=episode.stop_reason.value,
            turns=episode.turns,
            tool_calls=episode.tool_calls,
            tokens=sum(episode.mask),
            reward=episode.reward if graded else None,
            error=episode.error,
            seconds=round(time.perf_counter() - began, 3),
        )

    def _request(self, question: ChatQuestion) -> EpisodeRequest:
        if question.problem is not None:
            wanted = question.problem + 1
            config = self.plan.config.on_originals().model_copy(update={"test_problems": max(8, wanted)})
            rows = self.world.tasks(config).test
            if wanted > len(rows):
                raise ConfigError(f"there are {len(rows)} test problems, number {question.problem} is not among them.")
            row = rows[question.problem]
            (first, *_) = requests([row], self.system_prompt)
            return EpisodeRequest(first.messages, first.row, question.problem, question.turn, 0)
        if not question.messages:
            raise ConfigError("there is nothing to answer: give a prompt or the number of a problem.")
        messages: list[Message] = conversation({"prompt": question.messages}, self.system_prompt)
        return EpisodeRequest(messages, {}, 0, question.turn, 0)


def serve(plan: ChatPlan, questions: IO[str], replies: IO[str], beside: Path) -> int:
    """Answers until the questions end. Returns an exit status."""

    def say(reply: ChatReply) -> None:
        replies.write(reply.model_dump_json() + "\n")
        replies.flush()

    try:
        import torch
        import transformers

        if plan.config.threads is not None:
            torch.set_num_threads(plan.config.threads)
        transformers.utils.logging.disable_progress_bar()
        world = open_world(plan.config, beside)
        loaded = load(resolve_model(plan.model, world.folder), plan.config.device, plan.config.dtype)
        chat = Chat(plan, world, loaded)
    except Exception as error:
        say(_failed(error))
        return 1
    say(ChatReply(ready=True, device=str(loaded.device)))
    for line in questions:
        try:
            say(ChatReply(answer=chat.answer(ChatQuestion.model_validate_json(line))))
        except Exception as error:  # a question that cannot be answered does not end the chat
            say(_failed(error))
    return 0


def _failed(error: Exception) -> ChatReply:
    from trainer.last_words import failure_of

    traceback.print_exc()
    sys.stderr.flush()
    return ChatReply(failure=failure_of(error))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="trainer.chat_main", description=__doc__)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--protocol-fd", type=int, required=True)
    parsed = parser.parse_args(arguments)
    path: Path = parsed.plan.absolute()
    with os.fdopen(parsed.protocol_fd, "w", encoding="utf-8", newline="\n") as replies:
        return serve(ChatPlan.model_validate(read_json(path)), sys.stdin, replies, path.parent)


if __name__ == "__main__":
    raise SystemExit(main())
