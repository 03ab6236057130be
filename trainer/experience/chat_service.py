"""One question to a language model behind OpenAI's chat API, and what is looked for in its reply."""

import json
from collections.abc import Iterator
from typing import Any

from trainer.experience.embed_remote import bearer
from trainer.experience.http_json import DEFAULT_TIMEOUTS, Timeouts, request_json
from trainer.experience.problems import PoolError, ProblemKind

MAX_STARTS = 64
"""Brackets at which a list is looked for in a reply."""


class NoCompletion(PoolError):
    """The service answered, and its answer is no chat completion."""


class ChatService:
    """A model of a service, asked at temperature 0."""

    def __init__(self, base_url: str, model: str, api_key_env: str = "", timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        """Raises PoolError where the key is named and not set."""
        self.url, self.model = f"{base_url.rstrip('/')}/chat/completions", model
        self._headers, self._timeouts = bearer(api_key_env), timeouts

    def reply(self, instruction: str, question: str) -> str:
        """The text of the reply. Raises NoCompletion, PoolError."""
        document = {
            "model": self.model,
            "temperature": 0,
            "messages": [{"role": "system", "content": instruction}, {"role": "user", "content": question}],
        }
        answer = request_json("POST", self.url, document, timeouts=self._timeouts, headers=self._headers)
        if answer.status != 200:
            raise PoolError(ProblemKind.REFUSED, f"{self.url} answers {answer.status}: {str(answer.body)[:200]}")
        try:
            return str(answer.body["choices"][0]["message"]["content"])
        except (KeyError, IndexError, TypeError) as error:
            raise NoCompletion(ProblemKind.BAD_ANSWER, f"{self.url} answers no chat completion") from error


def json_lists(text: str) -> Iterator[list[Any]]:
    """The JSON lists in a reply, from the first bracket on; of a reply of brackets only the first `MAX_STARTS`."""
    decoder, start = json.JSONDecoder(), text.find("[")
    for _ in range(MAX_STARTS):
        if start < 0:
            return
        try:
            found, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, list):
            yield found
        start = text.find("[", start + 1)
