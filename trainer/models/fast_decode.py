"""The decoder layers of the Llama family as plain functions, for sampling only: a few tokens a row behind a shared
header, with keys and values in buffers of our own.

A forward pass of transformers spends most of a small batch's time in Python and in small operations: 5.9 ms a token
for 32 rows of `tiny` on one core, of which the matrix products are 0.8. Here a layer is about eighteen operations:

- query, key and value weights are one matrix, gate and up weights another; the attention scale is part of the query
  weights;
- the two halves of a head that RoPE rotates are interleaved by a permutation of the weight rows (scores do not change
  when queries and keys are permuted alike), so that the rotation is one complex product;
- scores against the header, which all rows share, and against a row's own keys stand side by side in one matrix, so
  that one softmax serves both.

Weights are copied when a rollout begins; they must not change before it ends.
"""

import platform
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM

from trainer.models.shared_prefix import Tree

FAMILIES = (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)

REORDER_FROM = 300_000
"""Matrices with at least this many elements are stored in oneDNN's order: at 8 to 256 rows that makes the products of
SmolLM2-135M 1.2 to 1.8 times faster, those of `tiny` slower."""

Product = Callable[[Tensor], Tensor]


def supported(model: PreTrainedModel) -> bool:
    """Whether this module computes what the model computes: a plain Llama, Qwen 2 or Qwen 3 in float32 on the CPU."""
    if type(model) not in FAMILIES or model.device.type != "cpu" or model.dtype is not torch.float32:
        return False
    config = model.config
    if config.rope_parameters["rope_type"] not in ("default", "linear", "llama3") or config.hidden_act != "silu":
        return False
    first = model.model.layers[0]
    parts = (first.self_attn.q_proj, first.self_attn.o_proj, first.mlp.gate_proj, first.mlp.down_proj)
    return all(type(part) is nn.Linear for part in parts)  # adapters replace them


def _product(weight: Tensor, bias: Tensor | None) -> Product:
    """x → x·Wᵀ + b."""
    reorder = weight.numel() >= REORDER_FROM and torch.backends.mkldnn.is_available()
    if not reorder or platform.machine() not in ("x86_64", "AMD64"):
        return lambda x: functional.linear(x, weight, bias)
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight, 32)
    linear = torch.ops.mkldnn._linear_pointwise
    return lambda x: linear(x, ordered, bias, "none", [], "")


def _interleave(dim: int) -> Tensor:
    """Order that puts the halves of a head side by side: 0, d/2, 1, d/2 + 1, …"""
    return torch.arange(dim).view(2, dim // 2).t().reshape(-1)


class _Layer:
    """One decoder layer's weights."""

    def __init__(self, layer: nn.Module, heads: int, groups: int, dim: int) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        order = _interleave(dim)
        normed = "q_norm" in attention._modules
        scale = float(attention.scaling)

        def rows(part: Tensor | None, count: int, factor: float = 1.0) -> Tensor | None:
            return None if part is None else part.unflatten(0, (count, dim))[:, order].flatten(0, 1) * factor

        factor = 1.0 if normed else scale  # a norm would take the scale out again
        q, k, v = attention.q_proj, attention.k_proj, attention.v_proj
        weight = torch.cat([rows(q.weight, heads, factor), rows(k.weight, groups), v.weight])
        bias = None if q.bias is None else torch.cat([rows(q.bias, heads, factor), rows(k.bias, groups), v.bias])
        self.qkv = _product(weight, bias)
        self.out = _product(attention.o_proj.weight, attention.o_proj.bias)
        gate_up_bias = None if mlp.gate_proj.bias is None else torch.cat([mlp.gate_proj.bias, mlp.up_proj.bias])
        self.gate_up = _product(torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]), gate_up_bias)
        self.down = _product(mlp.down_proj.weight, mlp.down_proj.bias)
        self.norm_in, self.norm_post = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
        self.norm_q = attention.q_norm.weight[order] * scale if normed else None
        self.norm_k = attention.k_norm.weight[order] if normed else None


class Decoder:
    """R rows that continue the prompts of a prefilled tree without rows, each with as many tokens as it has come to.

    The tokens of a row's prompt behind the header, and what it says, lie in a buffer of its own, filled from the left.
    `feed` puts tokens behind the accepted ones; `accept` says how many of them stand. The rest is overwritten.
    """

    def __init__(self, model: PreTrainedModel, prefill: Tree, prompts: list[int], group: list[int], capacity: int):
        """`prompts`: tokens of each prompt behind the header; row r continues prompt `group[r]`; `capacity`: tokens
        fed to one row at most, those that are not accepted included."""
        config = model.config
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        first = model.model.layers[0].self_attn
        self.dim = int(first.head_dim)
        self.eps = float(config.rms_norm_eps)
        self.layers = [_Layer(layer, self.heads, self.groups, self.dim) for layer in model.model.layers]
        self.embedding, self.norm = model.model.embed_tokens.weight, model.model.norm.weight
        self.rotary = model.model.rotary_emb
        self._layer_weights = sum(p.numel() for p in model.model.layers[0].parameters())
        head = model.get_output_embeddings()
        self.logits: Product = _product(head.weight, head.bias)
        self._fill(prefill, prompts, group, capacity)

    def _fill(self, prefill: Tree, prompts: list[int], group: list[int], capacity: int) -> None:
        order = _interleave(self.dim)
        self.header = prefill.header
        self._fed = 0
        self.length = torch.tensor([prompts[g] for g in group])
        rows, width = len(group), max(prompts) + capacity
        shape = (self.groups, rows, width, self.dim)
        self.header_k, self.header_v, self.k, self.v = [], [], [], []
        for layer in range(len(self.layers)):
            key, value = prefill.keys[layer][0][..., order], prefill.values[layer][0]
            self.header_k.append(key[:, : self.header].transpose(1, 2).contiguous())
            self.header_v.append(value[:, : self.header].contiguous())
            k, v = key.new_zeros(shape), key.new_zeros(shape)
            for row, g in enumerate(group):
                at, n = prefill.prompt_start[g], prompts[g]
                k[:, row, :n] = key[:, at : at + n]
                v[:, row, :n] = value[:, at : at + n]
            self.k.append(k)
            self.v.append(v)

    def work(self, tokens: int) -> float:
        """Floating point operations of a typical call (a twentieth of a layer) for so many tokens."""
        return 2.0 * self._layer_weights * tokens / 20

    def feed(self, tokens: Tensor) -> Tensor:
        """(R, W) tokens behind the accepted ones → (R·W, H) hidden states. Padding may follow a row's last token."""
        rows, width = tokens.shape
        self._fed = width
        own = self.length[:, None] + torch.arange(width)  # column of each token in its row's buffer
        capacity = self.k[0].shape[2]
        offset = (torch.arange(self.groups)[:, None, None] * rows + torch.arange(rows)[:, None]) * capacity
        place = (offset + own.clamp_max(capacity - 1)).flatten()
        seen = min(int(self.length.max()) + width, capacity)
        repeats = self.heads // self.groups
        mask: Tensor | None = None
        if width > 1 or bool((self.length != self.length[0]).any()):
            hidden_columns = torch.arange(seen) > own[..., None]
            mask = torch.zeros(rows, width, 1, seen).masked_fill_(hidden_columns[:, :, None], float("-inf"))
            wide = mask.expand(self.groups, rows, width, repeats, seen)
            mask = wide.reshape(self.groups * rows, width * repeats, seen)
        cos, sin = self.rotary(self.embedding, (self.header + own).flatten()[None])
        turn = torch.complex(cos[0, :, : self.dim // 2], sin[0, :, : self.dim // 2])[:, None]
        x = self.embedding[tokens.flatten()]
        for index, layer in enumerate(self.layers):
            h = functional.rms_norm(x, x.shape[1:], layer.norm_in, self.eps)
            x = x + layer.out(self._attention(index, layer.qkv(h), turn, place, mask, (rows, width, seen)))
            h = layer.gate_up(functional.rms_norm(x, x.shape[1:], layer.norm_post, self.eps))
            half = h.shape[1] // 2
            x = x + layer.down(functional.silu(h[:, :half]).mul_(h[:, half:]))
        return functional.rms_norm(x, x.shape[1:], self.norm, self.eps)

    def _attention(
        self, index: int, qkv: Tensor, turn: Tensor, place: Tensor, mask: Tensor | None, shape: tuple[int, int, int]
    ) -> Tensor:
        """(R·W, 3·…) projections → (R·W, heads·dim). `shape`: rows, tokens of each, columns of their own to look at."""
        rows, width, seen = shape
        heads, groups, dim, header = self.heads, self.groups, self.dim, self.header
        repeats, tokens = heads // groups, rows * width
        layer = self.layers[index]
        qk = qkv[:, : (heads + groups) * dim].view(tokens, heads + groups, dim)
        if layer.norm_q is not None:
            q = functional.rms_norm(qk[:, :heads], (dim,), layer.norm_q, self.eps)
            qk = torch.cat([q, functional.rms_norm(qk[:, heads:], (dim,), layer.norm_k, self.eps)], dim=1)
        pairs = torch.view_as_complex(qk.unflatten(2, (dim // 2, 2)))
        qk = torch.view_as_real(pairs * turn).flatten(2)
        k, v = self.k[index], self.v[index]
        k.view(-1, dim).index_copy_(0, place, qk[:, heads:].transpose(0, 1).reshape(-1, dim))
        value = qkv[:, (heads + groups) * dim :].view(tokens, groups, dim)
        v.view(-1, dim).index_copy_(0, place, value.transpose(0, 1).reshape(-1, dim))
        q = qk[:, :heads].view(tokens, groups, repeats, dim).transpose(0, 1).reshape(groups, tokens * repeats, dim)
        own_q = q.view(groups * rows, width * repeats, dim)
        own_k = k.view(groups * rows, -1, dim)[:, :seen]
        own_v = v.view(groups * rows, -1, dim)[:, :seen]
        own_scores = torch.bmm(own_q, own_k.mT) if mask is None else torch.baddbmm(mask, own_q, own_k.mT)
        own_scores = own_scores.view(groups, tokens * repeats, seen)
        if not header:
            out = torch.bmm(own_scores.softmax(-1).view(groups * rows, width * repeats, seen), own_v)
        else:
            scores = torch.cat([torch.bmm(q, self.header_k[index]), own_scores], dim=-1)
            weights = scores.softmax(-1)
            shared = torch.bmm(weights[:, :, :header], self.header_v[index]).view(groups * rows, width * repeats, dim)
            own_weights = weights.view(groups * rows, width * repeats, -1)[:, :, header:]
            out = torch.baddbmm(shared, own_weights, own_v)  # bmm would take a slow way for strided weights
        return out.view(groups, tokens, repeats * dim).transpose(0, 1).reshape(tokens, heads * dim)

    def accept(self, counts: Tensor) -> None:
        """(R,) how many of the tokens fed last stand; behind `keep`, if rows leave or part at the same time."""
        self.length = self.length + counts

    def keep(self, rows: Tensor) -> None:
        """The rows from now on, by their present indices; one that is named twice is copied."""
        self.length = self.length[rows]
        used = min(int(self.length.max()) + self._fed, self.k[0].shape[2])  # counts of the last tokens come later
        for buffers in (self.k, self.v):
            for layer, old in enumerate(buffers):
                new = old.new_zeros(self.groups, len(rows), old.shape[2], self.dim)
                new[:, :, :used] = old[:, rows, :used]
                buffers[layer] = new
