"""Several processes that train one run together (launched by torch.distributed.run; gloo on the CPU, nccl on GPUs).

Each rank plays and learns from whole groups of its own; gradients are averaged once an update. Rank 0 alone writes the
run directory, evaluates and decides; what it decides is told to the others, so that all make the same collective calls.
torch is imported where it is needed: the worker reads its rank before it sets what torch reads when it is loaded.
With one process every function is the identity and torch.distributed is never initialised.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")


def world_size() -> int:
    """Processes of this run, from the environment that the launcher sets; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Number of this process, 0 for the one that writes."""
    return int(os.environ.get("RANK", "0"))


def is_main() -> bool:
    return rank() == 0


def gather(values: list[T]) -> list[T]:
    """The lists of all ranks, one behind the other."""
    if world_size() == 1:
        return values
    from torch import distributed

    parts: list[Any] = [None] * world_size()
    distributed.all_gather_object(parts, values)
    return [value for part in parts for value in part]


def agree(value: T) -> T:
    """Rank 0's value, everywhere."""
    if world_size() == 1:
        return value
    from torch import distributed

    box: list[Any] = [value]
    distributed.broadcast_object_list(box, src=0)
    told: T = box[0]
    return told


def total(value: "Tensor") -> "Tensor":
    """Sum over the ranks."""
    if world_size() == 1:
        return value
    from torch import distributed

    value = value.clone()
    distributed.all_reduce(value)
    return value


def weighted_means(values: dict[str, float], weight: float) -> dict[str, float]:
    """Means over the ranks, each rank counting with its `weight`; ranks without a value, or of weight 0, do not count.

    Exact for what is a mean over tokens, with a rank's trained tokens as its weight.
    """
    if world_size() == 1:
        return values
    sums: dict[str, tuple[float, float]] = {}
    for theirs, counted in gather([(values, weight)]):
        for name, value in theirs.items():
            total_value, total_weight = sums.get(name, (0.0, 0.0))
            sums[name] = (total_value + value * counted, total_weight + counted)
    return {name: value / counted for name, (value, counted) in sums.items() if counted > 0}


def average_gradients(parameters: "list[torch.nn.Parameter]") -> None:
    """Mean of the ranks' gradients in place; a rank that has none for a parameter counts as zero."""
    if world_size() == 1:
        return
    import torch
    from torch import distributed

    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        distributed.all_reduce(parameter.grad)
        parameter.grad /= world_size()


@contextmanager
def alone(accelerator: Any) -> Iterator[None]:
    """Within it the accelerator's gather and reduce return what they were given.

    TRL gathers one value a row for its logs, but ranks keep different numbers of rows and split them into different
    numbers of parts. So its loss is computed without a collective call; what is logged of it is brought together
    afterwards (`weighted_means`).
    """
    if world_size() == 1:
        yield
        return
    names = ("gather", "gather_for_metrics", "reduce")
    for name in names:
        setattr(accelerator, name, lambda value, *_, **__: value)
    try:
        yield
    finally:
        for name in names:
            delattr(accelerator, name)  # the class's own again


def wait_for_all() -> None:
    """Returns when every rank is here."""
    if world_size() > 1:
        from torch import distributed

        distributed.barrier()
