"""Embedders: texts to unit vectors. The default works offline, in English and Chinese, without a model.

**Hashed n-grams** (`hashed`): the features of a text are its words, the 3- and 4-grams of `<word>`, numbers, signs, and
single and neighbouring CJK characters. A feature f that occurs c times weighs w(f)·(1 + ln c); words weigh 1, n-grams
0.35, function words a tenth of that. Each feature is projected onto four coordinates with signs that a hash of it
chooses (sparse random projection, Achlioptas 2003; feature hashing, Weinberger et al. 2009), so the scalar product of
two vectors estimates that of their bags of features with a standard error of about 1/sqrt(dimensions). Nothing is
learned: it finds the same words in other forms and with slips of the keyboard, not synonyms. `docs/experience.md` says
how well.

A change of an embedder's `id` makes the pool compute all vectors again.
"""

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trainer.experience.tokens import FUNCTION_WORDS, normalised, pieces

Vectors = NDArray[np.float32]

DIMENSIONS = 256
_PLACES = 4
"""Coordinates of one feature."""


class Embedder(Protocol):
    """Texts to vectors."""

    id: str
    """Names the embedder and all that changes its vectors."""
    dimensions: int
    noise: float
    """Cosine up to which two texts have nothing in common, as far as this embedder can tell."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """(N, dimensions), rows of length 1 (or 0 for a text without features). Raises PoolError."""
        ...


class HashedEmbedder:
    """The default; see the module."""

    def __init__(self, dimensions: int = DIMENSIONS) -> None:
        self.dimensions = dimensions
        self.id = f"hashed-1:{dimensions}"
        self.noise = 2.0 / math.sqrt(dimensions)

    def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            vector = [0.0] * self.dimensions
            for (feature, weight), count in Counter(_features(text)).items():
                strength = weight * (1.0 + math.log(count))
                for place, sign in _projection(feature, self.dimensions):
                    vector[place] += sign * strength
            vectors[row] = vector
        return unit(vectors)


def unit(vectors: Vectors) -> Vectors:
    """Rows of length 1; rows of length 0 and what is not finite become 0."""
    clean = np.nan_to_num(vectors.astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    lengths = np.linalg.norm(clean, axis=1, keepdims=True)
    return np.divide(clean, lengths, out=np.zeros_like(clean), where=lengths > 0)


def _features(text: str) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for kind, piece in pieces(normalised(text)):
        if kind == "cjk":
            found += [(f"c{c}", 0.05 if c in FUNCTION_WORDS else 0.5) for c in piece]
            found += [(f"b{piece[i : i + 2]}", 1.0) for i in range(len(piece) - 1)]
        elif kind == "word":
            small = 0.1 if piece in FUNCTION_WORDS or len(piece) == 1 else 1.0  # x, y: names of slots
            found.append((f"w{piece}", small))
            if small == 1.0:
                found += [(f"g{gram}", 0.35) for gram in _grams(piece)]
        else:
            found.append((f"{kind[0]}{piece}", 1.0))
    return found


@lru_cache(maxsize=50_000)
def _grams(word: str) -> tuple[str, ...]:
    edged = f"<{word}>"
    return tuple(edged[i : i + n] for n in (3, 4) for i in range(len(edged) - n + 1))


@lru_cache(maxsize=200_000)
def _projection(feature: str, dimensions: int) -> tuple[tuple[int, float], ...]:
    data = feature.encode("utf-8", "backslashreplace")
    places = []
    for number in range(_PLACES):
        value = zlib.crc32(data, 0x9E3779B9 * (number + 1) & 0xFFFFFFFF) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
        places.append(((value >> 33) % dimensions, 1.0 if value >> 32 & 1 else -1.0))
    return tuple(places)
