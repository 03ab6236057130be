"""Attention over sequences that share prefixes, computed once per prefix, registered through transformers.

Two layouts, chosen per forward call by the keyword `layout` (without it the model behaves as with plain SDPA):

- `Tree`: many conversations in one packed sequence. A tree of segments (tool header → prompt of a group → rows) laid
  out depth first; a token sees its own segment causally and its ancestors fully. Used for training and for prefill.
- `Decode`: one new token a row. Keys and values of the prefix that all rows share are read once for the whole batch,
  the rest lies in a preallocated buffer per row, left padded so that all rows write the same column.

A query's attention is computed in pieces (one per ancestor) that each return their log-sum-exp; pieces are merged as
softmax(a ∪ b) = σ(l_b - l_a) · b + (1 - σ) · a with l = logaddexp(l_a, l_b). In the backward pass the flash kernel,
given the *merged* output and log-sum-exp, returns each piece's exact share of the gradient, since the probability of
a key under the merged softmax is exp(score - l).
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

NAME = "evo_shared_prefix"

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

NO_MASK = torch.zeros(1, 1, 1, 1)
"""Given as `attention_mask` so that transformers builds none; the layout decides who sees whom."""


class Layout(Protocol):
    """What the registered attention function asks of a layout."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """(B, H, L, D) queries, (B, Hkv, L, D) keys and values → (B, L, H, D)."""
        ...


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    layout: Layout | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    if layout is None:
        output: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )
        return output
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return layout.attend(int(module.layer_idx), query, key, value, scale), None


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, sdpa_mask)


def supported(model: PreTrainedModel) -> bool:
    """Whether layouts can be used: on the CPU, with full (not sliding) attention through the attention interface."""
    config = model.config.get_text_config().to_dict()
    kinds = set(config.get("layer_types") or ())
    full = kinds == {"full_attention"} if kinds else not config.get("sliding_window")
    return model.device.type == "cpu" and bool(model._supports_attention_backend) and full


def install(model: PreTrainedModel) -> bool:
    """Switches a supported model over; returns whether it is on now."""
    if not supported(model):
        return False
    model.set_attn_implementation(NAME)
    return True


@dataclass(frozen=True)
class _Piece:
    """Queries [q, q + nq) look at keys [k, k + nk)."""

    q: int
    nq: int
    k: int
    nk: int
    causal: bool
    first: bool
    """Writes the result; later pieces of the same queries merge into it."""


class Tree:
    """One packed sequence: [header][prompt 0][rows of 0 …][prompt 1][rows of 1 …] …; lengths may be zero for prompts.

    `rows[g]` holds the lengths (≥ 1) of group g's rows. `keep`: remember each layer's keys and values (prefill).
    """

    def __init__(self, header: int, prompts: list[int], rows: list[list[int]], *, keep: bool = False) -> None:
        self.header = header
        self.prompt_start: list[int] = []
        self.row_start: list[int] = []
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self._keep = keep
        self._pieces: list[_Piece] = []
        total = header + sum(prompts) + sum(map(sum, rows))
        if header:
            self._pieces.append(_Piece(0, header, 0, header, True, True))
            if total > header:
                self._pieces.append(_Piece(header, total - header, 0, header, False, True))
        at = header
        for prompt, lengths in zip(prompts, rows, strict=True):
            self.prompt_start.append(at)
            if prompt:
                self._pieces.append(_Piece(at, prompt, at, prompt, True, not header))
                if lengths:
                    self._pieces.append(_Piece(at + prompt, sum(lengths), at, prompt, False, not header))
            root = not header and not prompt
            at += prompt
            for length in lengths:
                self.row_start.append(at)
                self._pieces.append(_Piece(at, length, at, length, True, root))
                at += length
        self.length = at

    @property
    def pieces(self) -> list[_Piece]:
        return self._pieces

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        if self._keep:
            self.keys[layer], self.values[layer] = key, value
        result: Tensor = _TreeAttention.apply(query, key, value, self, scale)
        return result.transpose(1, 2)


class _TreeAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, tree: Tree, scale: float) -> Tensor:
        repeats = query.shape[1] // key.shape[1]
        keys, values = repeat_kv(key, repeats), repeat_kv(value, repeats)
        merged = torch.empty_like(query)
        lse = query.new_empty(query.shape[:3], dtype=torch.float32)
        for p in tree.pieces:
            out, part = _flash(
                query[:, :, p.q : p.q + p.nq],
                keys[:, :, p.k : p.k + p.nk],
                values[:, :, p.k : p.k + p.nk],
                0.0,
                p.causal,
                attn_mask=None,
                scale=scale,
            )
            target, total = merged[:, :, p.q : p.q + p.nq], lse[:, :, p.q : p.q + p.nq]
            if p.first:
                target.copy_(out)
                total.copy_(part)
            else:
                target.lerp_(out, torch.sigmoid(part - total)[..., None].to(out.dtype))
                total.copy_(torch.logaddexp(total, part))
        ctx.save_for_backward(query, keys, values, merged, lse)
        ctx.tree, ctx.scale, ctx.repeats = tree, scale, repeats
        return merged

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, keys, values, merged, lse = ctx.saved_tensors
        dq, dk, dv = torch.zeros_like(query), torch.zeros_like(keys), torch.zeros_like(values)
        for p in ctx.tree.pieces:
            q, k = slice(p.q, p.q + p.nq), slice(p.k, p.k + p.nk)
            a, b, c = _flash_backward(
                gradient[:, :, q],
                query[:, :, q],
                keys[:, :, k],
                values[:, :, k],
                merged[:, :, q],
                lse[:, :, q],
                0.0,
                p.causal,
                attn_mask=None,
                scale=ctx.scale,
            )
            dq[:, :, q] += a
            dk[:, :, k] += b
            dv[:, :, k] += c
        if ctx.repeats > 1:
            dk = dk.unflatten(1, (-1, ctx.repeats)).sum(2)
            dv = dv.unflatten(1, (-1, ctx.repeats)).sum(2)
        return dq, dk, dv, None, None


class Decode:
    """One new token for each of B rows behind a prefilled tree without rows.

    Row r continues prompt `group[r]`. All rows write the same column of the buffer: prompts are padded on the left.
    Call `advance()` before each forward pass and give it `positions()` as `position_ids`.
    """

    def __init__(self, prefill: Tree, prompts: list[int], group: list[int], capacity: int) -> None:
        """`capacity`: new tokens at most."""
        layers = len(prefill.keys)
        first = prefill.keys[0]
        self.header = prefill.header
        self.width = max(prompts)
        rows, heads, dim = len(group), first.shape[1], first.shape[3]
        self.pad = torch.tensor([self.width - prompts[g] for g in group])
        self.column = self.width
        self.shared_k = [prefill.keys[i][:, :, : self.header].contiguous() for i in range(layers)]
        self.shared_v = [prefill.values[i][:, :, : self.header].contiguous() for i in range(layers)]
        self.k = [first.new_zeros(rows, heads, self.width + capacity, dim) for _ in range(layers)]
        self.v = [first.new_zeros(rows, heads, self.width + capacity, dim) for _ in range(layers)]
        starts = prefill.prompt_start
        for i in range(layers):
            for row, g in enumerate(group):
                a, b, n = starts[g], self.width - prompts[g], prompts[g]
                self.k[i][row, :, b : b + n] = prefill.keys[i][0, :, a : a + n]
                self.v[i][row, :, b : b + n] = prefill.values[i][0, :, a : a + n]
        self._mask: Tensor | None = None

    def advance(self) -> None:
        """Makes room for one more token a row."""
        self.column += 1
        if self.header == 0 or bool((self.pad > 0).any()):
            seen = torch.arange(self.column) >= self.pad[:, None]
            self._mask = torch.zeros(seen.shape, dtype=self.k[0].dtype).masked_fill_(~seen, float("-inf"))[
                :, None, None
            ]
        else:
            self._mask = None

    def positions(self) -> Tensor:
        """(B, 1) positions of the new tokens."""
        return (self.header + self.column - 1 - self.pad)[:, None]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        rows, heads, _, dim = query.shape
        kv_heads = key.shape[1]
        repeats = heads // kv_heads
        self.k[layer][:, :, self.column - 1] = key[:, :, 0]
        self.v[layer][:, :, self.column - 1] = value[:, :, 0]
        grouped = query.reshape(rows, kv_heads, repeats, dim)  # queries of one key head side by side: no repeated keys
        mask = None if self._mask is None else self._mask.expand(rows, 1, repeats, self.column)
        out, lse = _flash(
            grouped,
            self.k[layer][:, :, : self.column],
            self.v[layer][:, :, : self.column],
            0.0,
            False,
            attn_mask=mask,
            scale=scale,
        )
        if self.header:
            together = grouped.transpose(0, 1).reshape(1, kv_heads, rows * repeats, dim)
            shared, shared_lse = _flash(together, self.shared_k[layer], self.shared_v[layer], 0.0, False, scale=scale)
            shared = shared[0].unflatten(1, (rows, repeats)).transpose(0, 1)
            shared_lse = shared_lse[0].unflatten(1, (rows, repeats)).transpose(0, 1)
            out = torch.lerp(shared, out, torch.sigmoid(lse - shared_lse)[..., None].to(out.dtype))
        return out.reshape(rows, heads, 1, dim).transpose(1, 2)

    def keep(self, rows: Tensor) -> None:
        """Drops all rows but these."""
        self.pad = self.pad[rows]
        self.k = [k[rows] for k in self.k]
        self.v = [v[rows] for v in self.v]


def common_prefix(sequences: list[list[int]]) -> int:
    """Length of the longest prefix that all sequences share."""
    low, high = min(sequences), max(sequences)
    length = 0
    for a, b in zip(low, high, strict=False):
        if a != b:
            break
        length += 1
    return length


@dataclass(frozen=True)
class PackedTree:
    """Groups of rows packed behind their shared header and prompts."""

    input_ids: Tensor
    """(1, L)."""
    position_ids: Tensor
    """(1, L)."""
    tree: Tree
    source: Tensor
    """(S,) position whose output predicts the token."""
    target: Tensor
    """(S,) the predicted token."""
    row: Tensor
    """(S,) row of the token, in the order of the input."""
    column: Tensor
    """(S,) index of the token in its row."""


def pack_tree(groups: list[tuple[list[int], list[list[int]]]]) -> PackedTree:
    """Packs (prompt ids, rows) groups; prompts have at least one token, empty rows are skipped.

    A row starts with the prompt's last token, so that its first prediction belongs to the row: it is the same for all
    rows of the group, but it costs one position and keeps the bookkeeping uniform.
    """
    prompts = [prompt for prompt, _ in groups]
    header = min(common_prefix(prompts), min(map(len, prompts)) - 1)
    ids: list[int] = list(prompts[0][:header])
    positions: list[int] = list(range(header))
    lengths, rests = [], []
    source: list[int] = []
    target: list[int] = []
    row_of: list[int] = []
    column: list[int] = []
    number = 0
    for prompt, rows in groups:
        rest = prompt[header:-1]
        rests.append(len(rest))
        ids += rest
        positions += range(header, len(prompt) - 1)
        kept = []
        for row in rows:
            n = len(row)
            if n:
                start = len(ids)
                ids += [prompt[-1], *row[:-1]]
                positions += range(len(prompt) - 1, len(prompt) - 1 + n)
                source += range(start, start + n)
                target += row
                row_of += [number] * n
                column += range(n)
                kept.append(n)
            number += 1
        lengths.append(kept)
    return PackedTree(
        torch.tensor([ids]),
        torch.tensor([positions]),
        Tree(header, rests, lengths),
        torch.tensor(source),
        torch.tensor(target),
        torch.tensor(row_of),
        torch.tensor(column),
    )
