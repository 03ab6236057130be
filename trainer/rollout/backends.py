"""How the next logits of a batch of rows are computed: prefill once, then a few tokens a row and pass.

`FastPrefix` (CPU, plain Llama and Qwen models) computes the layers by itself and takes several tokens of a row at once.
`SharedPrefix` (CPU, full attention) goes through transformers' layers, adapters included. Both read the prefix that all
rows share once for the whole batch. `PlainCache` works with every causal model and device of transformers: left-padded
prompts, expanded cache.
"""

from typing import Protocol

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from trainer.models import fast_decode, shared_prefix
from trainer.models.threads import Threads


class Backend(Protocol):
    """State of a batch of rows that go on by one token each."""

    def first(self, prompts: list[list[int]], group: list[int], capacity: int) -> Tensor:
        """Prefills; row r continues `prompts[group[r]]`. Returns (R, V) logits of the first new token."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Appends (R,) tokens and returns (R, V) logits of the next ones."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these (indices)."""
        ...


class Chunked(Protocol):
    """State of a batch of rows that go on by up to `width` tokens each."""

    @property
    def width(self) -> int:
        """Tokens of a row that one pass takes at most."""
        ...

    @property
    def overhead(self) -> float:
        """What a pass costs apart from its tokens, in tokens."""
        ...

    @property
    def copies(self) -> bool:
        """Whether `keep` may name a row several times and in any order, so that rows can begin as one and part."""
        ...

    def begin(self, prompts: list[list[int]], group: list[int], capacity: int) -> None:
        """Prefills; row r continues `prompts[group[r]]` and feeds that prompt's last token first. `capacity`: tokens
        of a row at most."""
        ...

    def feed(self, tokens: Tensor, wanted: list[int]) -> Tensor:
        """Feeds (R, W) tokens; returns the (S, V) logits behind tokens `wanted` (row * W + number)."""
        ...

    def accept(self, counts: Tensor) -> None:
        """(R,) how many of the tokens fed last stand."""
        ...

    def keep(self, rows: Tensor) -> None:
        """The rows from now on, by their present indices: others are dropped."""
        ...


class OneToken:
    """A `Backend` as a `Chunked` of width 1."""

    width, overhead, copies = 1, 0.0, False

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._first: Tensor | None = None

    def begin(self, prompts: list[list[int]], group: list[int], capacity: int) -> None:
        self._first = self.backend.first(prompts, group, capacity)

    def feed(self, tokens: Tensor, wanted: list[int]) -> Tensor:
        logits, self._first = self._first, None
        if logits is None:  # otherwise the prompts' last tokens, which `first` has fed already
            logits = self.backend.step(tokens[:, 0])
        return (
            logits
            if len(wanted) == len(logits)
            else logits[torch.tensor(wanted, dtype=torch.long, device=logits.device)]
        )

    def accept(self, counts: Tensor) -> None:
        """There is nothing to take back."""

    def keep(self, rows: Tensor) -> None:
        self.backend.keep(rows)


class FastPrefix:
    """Header of all prompts shared, our own layers (models/fast_decode.py)."""

    width = 8
    """More is slower where a guess is wrong, and few guesses go further."""

    copies = True

    overhead = 20.0
    """Seen on two cores: `tiny` 18 (small operations), SmolLM2-135M 30 (reading the weights)."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._decoder: fast_decode.Decoder | None = None

    def begin(self, prompts: list[list[int]], group: list[int], capacity: int) -> None:
        tree, rests = _prefill(self.model, prompts)
        self._decoder = fast_decode.Decoder(self.model, tree, rests, group, capacity + self.width + 1)

    def feed(self, tokens: Tensor, wanted: list[int]) -> Tensor:
        assert self._decoder is not None, "begin() comes before feed()"
        with Threads() as threads:
            threads.for_work(self._decoder.work(tokens.numel()))
            hidden = self._decoder.feed(tokens)
            if len(wanted) < len(hidden):
                hidden = hidden[torch.tensor(wanted, dtype=torch.long)]
            return self._decoder.logits(hidden)

    def accept(self, counts: Tensor) -> None:
        assert self._decoder is not None, "begin() comes before accept()"
        self._decoder.accept(counts)

    def keep(self, rows: Tensor) -> None:
        assert self._decoder is not None, "begin() comes before keep()"
        self._decoder.keep(rows)


def _hidden(model: PreTrainedModel, ids: Tensor, positions: Tensor, layout: shared_prefix.Layout) -> Tensor:
    hidden: Tensor = model.base_model(
        input_ids=ids,
        position_ids=positions,
        attention_mask=shared_prefix.NO_MASK,
        use_cache=False,
        layout=layout,
    ).last_hidden_state
    return hidden


def _prefill(model: PreTrainedModel, prompts: list[list[int]]) -> tuple[shared_prefix.Tree, list[int]]:
    """All prompts without their last tokens; (tree with keys and values, tokens of each prompt behind the header)."""
    header = min(shared_prefix.common_prefix(prompts), min(map(len, prompts)) - 1)
    rests = [prompt[header:-1] for prompt in prompts]
    root = shared_prefix.Segment(prompts[0][:header], [shared_prefix.Segment(rest) for rest in rests])
    tree = shared_prefix.Tree(root, keep=True)
    if not tree.length:
        raise ValueError("a prompt of one token leaves nothing to prefill; use the plain cache")
    _hidden(model, torch.tensor([tree.ids]), torch.tensor([tree.positions]), tree)
    return tree, [len(rest) for rest in rests]


class SharedPrefix:
    """Header of all prompts shared, the rest in a buffer per row."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._decode: shared_prefix.Decode | None = None

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.model.get_output_embeddings()(hidden)
        return logits

    def first(self, prompts: list[list[int]], group: list[int], capacity: int) -> Tensor:
        tree, rests = _prefill(self.model, prompts)
        self._decode = shared_prefix.Decode(tree, rests, group, capacity + 1)
        return self.step(torch.tensor([prompts[g][-1] for g in group]))

    def step(self, tokens: Tensor) -> Tensor:
        assert self._decode is not None, "first() comes before step()"
        self._decode.advance()
        return self._logits(_hidden(self.model, tokens[:, None], self._decode.positions(), self._decode)[:, 0])

    def keep(self, rows: Tensor) -> None:
        assert self._decode is not None, "first() comes before keep()"
        self._decode.keep(rows)


class PlainCache:
    """transformers' own cache, prompts prefilled once per group and expanded."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._cache: DynamicCache | None = None
        self._mask = torch.empty(0)

    def first(self, prompts: list[list[int]], group: list[int], capacity: int) -> Tensor:
        device = self.model.device
        width = max(map(len, prompts))
        ids = torch.tensor([[0] * (width - len(p)) + p for p in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)
        self._cache = DynamicCache(config=self.model.config)
        out = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(-1) - 1).clamp_min(0),
            cache=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        rows = torch.tensor(group, device=device)
        self._cache.batch_select_indices(rows)
        self._mask = mask[rows]
        logits: Tensor = out.logits[:, -1][rows]
        return logits

    def step(self, tokens: Tensor) -> Tensor:
        positions = self._mask.sum(-1, keepdim=True)
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(self._mask), 1)], dim=1)
        out = self.model(
            input_ids=tokens.to(self.model.device)[:, None],
            attention_mask=self._mask,
            position_ids=positions,
            cache=self._cache,
            use_cache=True,
        )
        logits: Tensor = out.logits[:, -1]
        return logits

    def keep(self, rows: Tensor) -> None:
        assert self._cache is not None, "first() comes before keep()"
        rows = rows.to(self.model.device)
        self._cache.batch_select_indices(rows)
        self._mask = self._mask[rows]


def backend_for(model: PreTrainedModel) -> Backend | Chunked:
    """The fastest that the model supports as it is configured now."""
    if model.config._attn_implementation != shared_prefix.NAME or not shared_prefix.supported(model):
        return PlainCache(model)
    return FastPrefix(model) if fast_decode.supported(model) else SharedPrefix(model)


def chunked(backend: Backend | Chunked) -> Chunked:
    """Any backend as one that takes chunks."""
    return backend if isinstance(backend, FastPrefix) else OneToken(backend)  # type: ignore[arg-type]
