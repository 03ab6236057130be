"""A made-up environment that only follows the contract: two shops with other prices, a question that needs a chain."""

from typing import Any

PRICES = {
    "North": {"apple": 3, "pear": 7, "plum": 2, "fig": 9},
    "South": {"apple": 5, "pear": 1, "plum": 8, "fig": 4},
}


class Shop:
    """Buying some pieces: look up the price, multiply, pay."""

    system_prompt = "Solve the task with the tools."

    def reset(self, total: int = 0, branch: str = "North", **row: Any) -> None:
        self.total, self.branch, self.reward, self.finished = total, branch, 0.0, False
        row.get("notes", []).append("seen")  # an environment may spoil what it is given

    def price(self, item: str) -> str:
        """
        Look up the price of one piece.

        Args:
            item: The item.
        """
        return str(PRICES[self.branch][item])

    def multiply(self, a: int, b: int) -> str:
        """
        Multiply two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return str(int(a) * int(b))

    def pay(self, amount: int) -> str:
        """
        Pay.

        Args:
            amount: How much.
        """
        self.reward, self.finished = float(int(amount) == int(self.total)), True
        return "paid"

    def get_reward(self) -> float:
        return self.reward


class Generous(Shop):
    """Rewards doing nothing."""

    def get_reward(self) -> float:
        return 1.0


class Undecided(Shop):
    """Gives rows to a split that there is not."""

    @classmethod
    def owner(cls, row: dict[str, Any]) -> str:
        row.clear()
        return "all"


class Elsewhere(Shop):
    """Keeps the South for tests."""

    @classmethod
    def owner(cls, row: dict[str, Any]) -> str:
        return "test" if row.pop("branch") == "South" else "train"


class Moody(Shop):
    """A price that every instance draws for itself: nothing that rests on it can be repeated."""

    drawn = 0

    def reset(self, total: int = 0, branch: str = "North", **row: Any) -> None:
        super().reset(total, branch)
        type(self).drawn += 1
        self.factor = type(self).drawn

    def multiply(self, a: int, b: int) -> str:
        """
        Multiply two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return f"{int(a) * int(b)} ({self.factor})"

    def pay(self, amount: int) -> str:
        """
        Pay.

        Args:
            amount: How much.
        """
        self.reward, self.finished = 1.0, True
        return f"paid {self.factor}"


class Broken(Shop):
    """Cannot be reset."""

    def reset(self, total: int = 0, branch: str = "North", **row: Any) -> None:
        raise RuntimeError("the shop is closed")


class Desk:
    """The last call takes two arguments, and one of them has to be looked up."""

    def reset(self, room: str = "", day: str = "", **row: Any) -> None:
        self.wanted, self.reward, self.finished = (room, day), 0.0, False

    def room_of(self, team: str) -> str:
        """
        Find the room of a team.

        Args:
            team: The team.
        """
        return TEAMS[team]

    def book(self, room: str, day: str) -> str:
        """
        Book a room.

        Args:
            room: The room.
            day: The day.
        """
        self.reward, self.finished = float((room, day) == self.wanted), True
        return "booked"

    def get_reward(self) -> float:
        return self.reward


TEAMS = {"sales": "R12", "design": "R7", "support": "R31", "legal": "R5"}
DAYS = ("Monday", "Tuesday", "Friday", "Sunday")
LAMPS = ("red", "blue", "green", "white", "amber")
ROOMS = ("hall", "kitchen", "attic", "cellar")


class Switches:
    """No tool ends an episode: what counts is the state."""

    def reset(self, lamp: str = "", room: str = "", **row: Any) -> None:
        self.wanted, self.lit = (room, lamp), set[tuple[str, str]]()

    def press(self, room: str, lamp: str) -> str:
        """
        Press the switch of a lamp.

        Args:
            room: Where it is.
            lamp: Its colour.
        """
        if room not in ROOMS or lamp not in LAMPS:
            raise ValueError(f"there is no {lamp} lamp in the {room}")
        self.lit ^= {(room, lamp)}
        return f"the lamp is {'on' if (room, lamp) in self.lit else 'off'}"

    def get_reward(self) -> float:
        return float(self.lit == {self.wanted})
