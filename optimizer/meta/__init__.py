"""The meta layer: what the optimiser's own records say about it, and patches of its policy tried on recorded trials.

Depth one: it writes skills of group `traj`, never its own and never `rllm` (`optimizer.layers.check_write`).
"""
