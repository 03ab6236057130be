"""Layers: who may read and write what. An optimiser reads the segments of the layer below and writes its skills."""

from enum import StrEnum


class Layer(StrEnum):
    """Which part of the system acts; a skill group has the name of the layer that works by it."""

    RLLM = "rllm"
    """Trains models."""
    TRAJ = "traj"
    """Improves the skills of `rllm` from its trajectories."""
    META = "meta"
    """Improves the skills of `traj` from its trajectories."""
    OTHER = "other"
    """No skill of ours was in force."""


BELOW: dict[Layer, Layer] = {Layer.TRAJ: Layer.RLLM, Layer.META: Layer.TRAJ}
"""The layer an optimiser reads and whose skills it writes."""


class LayerError(PermissionError):
    """A layer reached for what is not its own: says what it may read or write."""


def layer_below(actor: Layer | str) -> Layer:
    """The layer an optimiser works on. Raises LayerError for a layer that is no optimiser."""
    found = BELOW.get(Layer(actor))
    if found is None:
        raise LayerError(f"layer {actor!r} optimises nothing: only traj (writes rllm) and meta (writes traj) do")
    return found


def check_write(actor: Layer | str, group: str) -> None:
    """Raises LayerError unless `actor` may change skills of `group`."""
    allowed = layer_below(actor)
    if group != allowed:
        raise LayerError(
            f"layer {actor} may not change skills of group {group!r}, only of {allowed.value!r}. "
            f"Write the patch for a skill of group {allowed.value!r}"
        )


def check_read(actor: Layer | str, layer: Layer | str) -> None:
    """Raises LayerError unless `actor` may read trajectories of `layer`."""
    allowed = layer_below(actor)
    if layer != allowed:
        raise LayerError(f"layer {actor} may not read trajectories of layer {str(layer)!r}, only of {allowed.value!r}")


def layer_of_group(group: str | None) -> Layer:
    """Layer of a skill's group; a group that is none of ours belongs to no layer."""
    return Layer(group) if group in set(Layer) else Layer.OTHER
