"""Embedders that need more than this package: sentence-transformers, or a service that speaks OpenAI's embeddings API.

Both are chosen in the workspace's `config.yaml` (`config.ExperienceSettings.embedder`). A change makes the pool compute
all vectors again when it is opened.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainer.experience.embed import Vectors, unit
from trainer.experience.http_json import DEFAULT_TIMEOUTS, Timeouts, request_json
from trainer.experience.problems import PoolError, ProblemKind


class SentenceTransformerEmbedder:
    """A model of the sentence-transformers package, from a local folder or the hub's cache."""

    noise = 0.0

    def __init__(self, model: str) -> None:
        """Loads the model. Raises PoolError where the package or the model is missing."""
        try:
            from sentence_transformers import SentenceTransformer  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise PoolError(
                ProblemKind.EMBEDDER,
                "sentence-transformers is not installed: `pip install mcp-evo[embeddings]`, or set "
                "`experience: {embedder: hashed}` in config.yaml",
            ) from error
        try:
            self._model: Any = SentenceTransformer(model, device="cpu")
        except (OSError, ValueError, RuntimeError) as error:
            raise PoolError(ProblemKind.EMBEDDER, f"the embedding model {model!r} cannot be loaded: {error}") from error
        self.dimensions = int(self._model.get_sentence_embedding_dimension())
        self.id = f"sentence-transformers:{model}:{self.dimensions}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        return unit(np.asarray(self._model.encode(list(texts), show_progress_bar=False), dtype=np.float32))


class EndpointEmbedder:
    """POST {base_url}/embeddings `{model, input}` → `{data: [{index, embedding}]}`."""

    noise = 0.0
    _BATCH = 64

    def __init__(self, base_url: str, model: str, api_key_env: str = "", timeouts: Timeouts = DEFAULT_TIMEOUTS) -> None:
        """Asks the service once for its dimensions. Raises PoolError."""
        self._url, self._model, self._timeouts = f"{base_url.rstrip('/')}/embeddings", model, timeouts
        self._headers = bearer(api_key_env)
        self.dimensions = int(self._ask(["dimensions"]).shape[1])
        self.id = f"endpoint:{base_url}:{model}:{self.dimensions}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        parts = [self._ask(list(texts[i : i + self._BATCH])) for i in range(0, len(texts), self._BATCH)]
        joined = np.concatenate(parts) if parts else np.zeros((0, self.dimensions), dtype=np.float32)
        if joined.shape[1] != self.dimensions:
            raise PoolError(ProblemKind.BAD_ANSWER, f"{self._url} changed from {self.dimensions} to {joined.shape[1]}")
        return unit(joined)

    def _ask(self, texts: list[str]) -> Vectors:
        document = {"model": self._model, "input": [text or " " for text in texts]}
        answer = request_json("POST", self._url, document, timeouts=self._timeouts, headers=self._headers)
        if answer.status != 200:
            raise PoolError(ProblemKind.REFUSED, f"{self._url} answers {answer.status}: {str(answer.body)[:200]}")
        try:
            rows = sorted(answer.body["data"], key=lambda one: one["index"])
            vectors = np.asarray([one["embedding"] for one in rows], dtype=np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise PoolError(ProblemKind.BAD_ANSWER, f"{self._url} answers no list of embeddings: {error}") from error
        if vectors.ndim != 2 or len(vectors) != len(texts):
            raise PoolError(ProblemKind.BAD_ANSWER, f"{self._url} answers {len(rows)} vectors for {len(texts)} texts")
        return vectors


def bearer(api_key_env: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The header for a key that an environment variable holds. Raises PoolError where it is named and not set."""
    if not api_key_env:
        return {}
    key = (os.environ if environment is None else environment).get(api_key_env)
    if not key:
        raise PoolError(ProblemKind.REFUSED, f"the environment variable {api_key_env}, which holds the key, is not set")
    return {"Authorization": f"Bearer {key}"}
