"""The garbage collector, out of the way while a bank is read.

Reading a large bank makes some hundred thousand small objects that all stay. The collector would walk them again and
again and find nothing: a sixth of the time.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """No automatic collection inside; as it was before afterwards. What was made is old then, so that the next
    collection of young objects does not walk it either."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.freeze()
            gc.unfreeze()  # all that there is moves to the oldest generation
            gc.enable()
