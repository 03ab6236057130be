"""Attention over sequences that share prefixes, computed once per prefix, registered through transformers.

Two layouts, chosen per forward call by the keyword `layout` (without it the model behaves as with plain SDPA):

- `Tree`: many conversations in one packed sequence. A tree of segments (tool header → prompt of a group → what several
  rows say alike → the rest of each) laid out depth first; a token sees its own segment causally and its ancestors
  fully. Used for training and for prefill.
- `Decode`: one new token a row. Keys and values of the prefix that all rows share are read once for the whole batch,
  the rest lies in a preallocated buffer per row, left padded so that all rows write the same column.

A query's attention is computed in pieces (one per ancestor) that each return their log-sum-exp; pieces are merged as
softmax(a ∪ b) = σ(l_b - l_a) · b + (1 - σ) · a with l = logaddexp(l_a, l_b). In the backward pass the flash kernel,
given the *merged* output and log-sum-exp, returns each piece's exact share of the gradient, since the probability of
a key under the merged softmax is exp(score - l).
"""

from dataclasses import dataclass, field
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


@dataclass
class Segment:
    """Tokens that follow what stands above them in the tree."""

    ids: list[int]
    children: list["Segment"] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    """Rows that say these tokens (empty above the rows)."""
    at: int = 0
    """Place of the first token in those rows."""
    start: int = 0
    """Place of the first token in the packed sequence, once a `Tree` has laid it out."""

    @property
    def total(self) -> int:
        """Tokens here and below."""
        return len(self.ids) + sum(child.total for child in self.children)


class Tree:
    """One packed sequence: each segment behind its parent, then its children one after the other.

    `prompt_start`: where the segments below the root begin. `keep`: remember each layer's keys and values (prefill).
    """

    def __init__(self, root: Segment, *, keep: bool = False) -> None:
        self.header = len(root.ids)
        self.keys: dict[int, Tensor] = {}
        self.values: dict[int, Tensor] = {}
        self.ids: list[int] = []
        self.positions: list[int] = []
        self._keep = keep
        self._pieces: list[_Piece] = []
        self._lay_out(root, 0)
        self.prompt_start = [child.start for child in root.children]
        self.length = len(self.ids)

    def _lay_out(self, segment: Segment, depth: int) -> None:
        """`depth`: tokens above the segment."""
        start, own, below = len(self.ids), len(segment.ids), segment.total - len(segment.ids)
        segment.start = start
        self.ids += segment.ids
        self.positions += range(depth, depth + own)
        if own:
            self._pieces.append(_Piece(start, own, start, own, True, not depth))
            if below:
                self._pieces.append(_Piece(start + own, below, start, own, False, not depth))
        for child in segment.children:
            self._lay_out(child, depth + own)

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
    """Groups of rows packed behind their shared header, prompts and beginnings."""

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


SPLIT_FROM = 8
"""Tokens that a shared segment must save: a segment more costs two small attention calls a layer, forward and backward,
about as much as five tokens of `tiny` or one of SmolLM2-135M."""


def pack_tree(groups: list[tuple[list[int], list[list[int]]]]) -> PackedTree:
    """Packs (prompt ids, rows) groups; prompts have at least one token, empty rows are skipped.

    What several rows of a group say alike from their beginning stands there once. The last token of a row is only
    predicted, so it takes no place.
    """
    header = common_prefix([prompt for prompt, _ in groups])
    root = Segment(groups[0][0][:header])
    everything = [row for _, rows in groups for row in rows]
    number = 0
    for prompt, rows in groups:
        members = [number + i for i, row in enumerate(rows) if row]
        root.children.append(Segment(prompt[header:], _branches(everything, members, 0)))
        number += len(rows)
    tree = Tree(root)
    places: list[list[int]] = [[0] * len(row) for row in everything]  # position that predicts each token
    number = 0
    for (_, rows), segment in zip(groups, root.children, strict=True):
        last = segment.start + len(segment.ids) - 1 if segment.ids else header - 1
        for row in range(number, number + len(rows)):
            places[row][:1] = [last] * len(places[row][:1])
        number += len(rows)
        waiting = list(segment.children)
        while waiting:
            one = waiting.pop()
            waiting += one.children
            for row in one.rows:
                places[row][one.at + 1 : one.at + 1 + len(one.ids)] = range(one.start, one.start + len(one.ids))
    return PackedTree(
        torch.tensor([tree.ids]),
        torch.tensor([tree.positions]),
        tree,
        torch.tensor([place for row in places for place in row], dtype=torch.long),
        torch.tensor([token for row in everything for token in row], dtype=torch.long),
        torch.tensor([i for i, row in enumerate(everything) for _ in row], dtype=torch.long),
        torch.tensor([column for row in everything for column in range(len(row))], dtype=torch.long),
    )


def _branches(rows: list[list[int]], members: list[int], at: int) -> list[Segment]:
    """Segments below a place where rows `members` have said the same `at` tokens; a row's last token is left out."""
    by_token: dict[int, list[int]] = {}
    for member in members:
        if at < len(rows[member]) - 1:
            by_token.setdefault(rows[member][at], []).append(member)
    segments = []
    for alike in by_token.values():
        shared = common_prefix([rows[m][at : len(rows[m]) - 1] for m in alike])
        if shared * (len(alike) - 1) >= SPLIT_FROM or len(alike) == 1:
            ids = rows[alike[0]][at : at + shared]
            segments.append(Segment(ids, _branches(rows, alike, at + shared), alike, at))
        else:
            segments += [Segment(rows[m][at:-1], [], [m], at) for m in alike]
    return segments
