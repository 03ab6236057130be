"""The fake worker with a model that never learns, whatever it is trained with: what a campaign must give up on."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # `python -P` leaves it out

from fake_worker import Learner, main


def learn_nothing(self: Learner, episodes: int) -> None:
    """Leaves success and entropy as they are."""


if __name__ == "__main__":
    Learner.learn = learn_nothing  # type: ignore[method-assign]
    main()
