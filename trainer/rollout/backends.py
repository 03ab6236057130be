"""How the next logits of a batch of rows are computed: prefill once, then one token a row and step.

`SharedPrefix` (CPU, full attention) reads the prefix that all rows share once for the whole batch. `PlainCache` works
with every causal model and device of transformers: left-padded prompts, expanded cache.
"""

from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from trainer.models import shared_prefix


class Backend(Protocol):
    """State of a batch of rows."""

    def first(self, prompts: list[list[int]], group: list[int], capacity: int) -> Tensor:
        """Prefills; row r continues `prompts[group[r]]`. Returns (R, V) logits of the first new token."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Appends (R,) tokens and returns (R, V) logits of the next ones."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these (indices)."""
        ...


class SharedPrefix:
    """Header of all prompts shared, the rest in a buffer per row."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._decode: shared_prefix.Decode | None = None

    def _hidden(self, ids: Tensor, positions: Tensor, layout: Any) -> Tensor:
        hidden: Tensor = self.model.base_model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=shared_prefix.NO_MASK,
            use_cache=False,
            layout=layout,
        ).last_hidden_state
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.model.get_output_embeddings()(hidden)
        return logits

    def first(self, prompts: list[list[int]], group: list[int], capacity: int) -> Tensor:
        header = min(shared_prefix.common_prefix(prompts), min(map(len, prompts)) - 1)
        rests = [prompt[header:-1] for prompt in prompts]
        tree = shared_prefix.Tree(header, [len(r) for r in rests], [[] for _ in rests], keep=True)
        if tree.length:
            ids = [*prompts[0][:header], *(t for rest in rests for t in rest)]
            positions = [*range(header), *(header + i for rest in rests for i in range(len(rest)))]
            self._hidden(torch.tensor([ids]), torch.tensor([positions]), tree)
            self._decode = shared_prefix.Decode(tree, [len(r) for r in rests], group, capacity + 1)
        else:
            raise ValueError("a prompt of one token leaves nothing to prefill; use the plain cache")
        return self.step(torch.tensor([prompts[g][-1] for g in group]))

    def step(self, tokens: Tensor) -> Tensor:
        assert self._decode is not None, "first() comes before step()"
        self._decode.advance()
        return self._logits(self._hidden(tokens[:, None], self._decode.positions(), self._decode)[:, 0])

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


def backend_for(model: PreTrainedModel) -> Backend:
    """The faster of the two that the model supports as it is configured now."""
    if model.config._attn_implementation == shared_prefix.NAME and shared_prefix.supported(model):
        return SharedPrefix(model)
    return PlainCache(model)
