"""Past lessons in new rollouts: the pool (`pool`, `source`), what a lesson is made of (`distil`), how it gets into a
prompt (`block`)."""
