"""Log-probabilities and entropies of completions with every shared prefix computed once (models/shared_prefix.py).

Axis names: B rows, P padded prompt, T padded completion, S scored tokens.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from trainer.models.shared_prefix import NO_MASK, common_prefix, pack_tree

LOGIT_ELEMENTS = 2**26
"""Logits computed at once (256 MB in float32); more are recomputed in the backward pass, piece by piece."""


def packed_logps(
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    completion_length: int,
    temperature: float,
    wanted: Tensor | None = None,
    *,
    entropy_gradient: bool = False,
) -> tuple[Tensor, Tensor]:
    """((B, T) log-probabilities, (B, T) entropies in nats) of the last `completion_length` columns; 0 where not wanted.

    `input_ids`, `attention_mask` (B, P + T): prompts padded on the left, completions on the right. `wanted` (B, T)
    bool: tokens to score, all by default. Entropies carry a gradient only with `entropy_gradient`.
    """
    width = input_ids.shape[1] - completion_length
    order, groups = rows_by_prompt(input_ids, attention_mask, width)
    packed = pack_tree(groups)
    whole = model.get_base_model() if "get_base_model" in dir(model) else model  # peft wraps, layers change in place
    hidden = whole.base_model(
        input_ids=packed.input_ids,
        position_ids=packed.position_ids,
        attention_mask=NO_MASK,
        use_cache=False,
        layout=packed.tree,
    ).last_hidden_state[0]
    row = torch.tensor(order)[packed.row]
    chosen = torch.ones(len(row), dtype=torch.bool) if wanted is None else wanted[row, packed.column]
    # rows that said the same so far are scored once
    head = whole.get_output_embeddings()
    vocabulary = int(head.weight.shape[0])
    different, which = torch.unique(packed.source[chosen] * vocabulary + packed.target[chosen], return_inverse=True)
    logps, entropies = score(
        hidden[different // vocabulary], different % vocabulary, head, temperature, entropy_gradient=entropy_gradient
    )
    logps, entropies = logps[which], entropies[which]
    size = (input_ids.shape[0], completion_length)
    flat = row[chosen] * completion_length + packed.column[chosen]

    def spread(values: Tensor) -> Tensor:
        return values.new_zeros(size[0] * size[1]).index_copy(0, flat, values).view(size)

    return spread(logps), spread(entropies)


def rows_by_prompt(
    input_ids: Tensor, attention_mask: Tensor, width: int
) -> tuple[list[int], list[tuple[list[int], list[list[int]]]]]:
    """Rows by prompt: (row numbers in packed order, [(prompt, completions)])."""
    ids, prompt_length = input_ids.tolist(), attention_mask[:, :width].sum(1).tolist()
    length = attention_mask[:, width:].sum(1).tolist()
    by_prompt: dict[tuple[int, ...], list[int]] = {}
    for row, sequence in enumerate(ids):
        by_prompt.setdefault(tuple(sequence[width - prompt_length[row] : width]), []).append(row)
    order = [row for rows in by_prompt.values() for row in rows]
    groups = [(list(p), [ids[row][width : width + length[row]] for row in rows]) for p, rows in by_prompt.items()]
    return order, groups


def packed_shape(
    input_ids: Tensor, attention_mask: Tensor, width: int
) -> tuple[list[int], list[int], list[int], list[int], int]:
    """What a row costs: (row numbers in packed order, their group, prompt tokens, completion tokens, shared header)."""
    order, groups = rows_by_prompt(input_ids, attention_mask, width)
    header = common_prefix([prompt for prompt, _ in groups])
    group = [number for number, (_, rows) in enumerate(groups) for _ in rows]
    prompts = [len(prompt) for prompt, rows in groups for _ in rows]
    lengths = [len(row) for _, rows in groups for row in rows]
    return order, group, prompts, lengths, header


def score(
    hidden: Tensor, target: Tensor, head: torch.nn.Module, temperature: float, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """(S,) float32 log-probabilities of the targets and entropies in nats under softmax(logits / temperature)."""

    def part(states: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        logp = (head(states).float() / temperature).log_softmax(-1)
        with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
            entropy = -(logp.exp() * logp).sum(-1)
        return logp.gather(-1, ids[:, None])[:, 0], entropy

    rows = max(1, LOGIT_ELEMENTS // int(head.weight.shape[0]))
    if len(hidden) <= rows:
        return part(hidden, target)
    parts = [
        checkpoint(part, hidden[at : at + rows], target[at : at + rows], use_reentrant=False)
        for at in range(0, len(hidden), rows)
    ]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
