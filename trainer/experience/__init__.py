"""Past lessons in new rollouts. So far: the block in which an experience enters a prompt."""
