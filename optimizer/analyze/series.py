"""Series: the numbers of a session under their names, each with its split, run, axis and the line that shows it.

1. A series is (name, split, run, axis, launch). The split is the one the name states; where it states none and the
   number stands in a line or table of training steps it is `train`, because that is what such a table counts.
2. A run id that was launched twice has two launches; numbers shown after the second belong to it.
3. What the agent wrote itself is kept, marked `own`, and proves nothing. A number that may stand for a missing key is
   no point at all.
4. Nothing is filled in: a step without a number has none.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from optimizer.analyze.authorship import WRITERS, Authorship
from optimizer.analyze.launches import Launch, find_launches, with_runs_by_log
from optimizer.analyze.parsers import TableMemory, read_all
from optimizer.analyze.readings import Axis, Reading, Role
from optimizer.analyze.runs_named import RunOfRow, named_runs, stated_runs
from optimizer.analyze.settings import RunSettings
from optimizer.analyze.splits import TRAIN, split_of_name
from optimizer.analyze.texts import DOCUMENT_SUFFIXES, command_of, input_text, lines_of, output_text, read_path
from optimizer.events import Event

MAX_POINTS = 200_000
"""Numbers kept of one session."""

_READS_A_FILE = re.compile(r"\A\s*(?:cat|head|tail|sed|less|grep)\b[^|;&]*?([\w./~-]+\.\w+)[^|;&]*\Z")


@dataclass(frozen=True)
class Point:
    """A number of a series."""

    reading: Reading
    line: int
    """Line of the event that shows it."""
    own: bool
    """The agent wrote it itself."""

    @property
    def step(self) -> float | None:
        return self.reading.step

    @property
    def value(self) -> float:
        return self.reading.value

    @property
    def role(self) -> Role:
        return self.reading.role


@dataclass(frozen=True)
class SeriesKey:
    """What makes two numbers belong together."""

    name: str
    split: str | None
    run: str | None
    axis: Axis
    launch: int
    """Which launch of the run, from 1; 0: none of its launches is in the session."""
    setting: bool


@dataclass
class Series:
    """The numbers of one metric of one run."""

    session: str
    key: SeriesKey
    points: list[Point] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def lines(self) -> list[int]:
        """Lines that show it, ascending."""
        return sorted({point.line for point in self.points})

    def measured(self) -> list[Point]:
        """Points at steps that no agent wrote: one for each step, the one shown last."""
        by_step = {
            point.step: point
            for point in self.points
            if point.step is not None and point.role is Role.VALUE and not point.own
        }
        return [by_step[step] for step in sorted(by_step)]


class SeriesBook:
    """All series of a session."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.series: dict[SeriesKey, Series] = {}
        self.runs: set[str] = set()
        self.launches: list[Launch] = []
        self.settings = RunSettings()
        self.steps_of_run: dict[tuple[str | None, int], int] = {}
        """The largest step, or N of `k/N`, that a run's launch is known to have."""
        self.planned_steps: dict[tuple[str | None, int], int] = {}
        """N of `k/N`, where the events show it."""
        self._points = 0
        self._by_line: dict[int, list[tuple[SeriesKey, Point]]] = {}

    @classmethod
    def build(cls, session: str, events: Iterable[Event]) -> "SeriesBook":
        """Reads every call of a session, in file order."""
        book = cls(session)
        calls = [event for event in events if event.is_call]
        for event in calls:
            book.runs |= stated_runs(input_text(event)) | stated_runs(output_text(event))
            book.runs |= {event.run_id} if event.run_id else set()
        book.launches = with_runs_by_log(find_launches(calls, book.runs), calls, book.runs)
        memory, author = TableMemory(), Authorship()
        for event in calls:
            text = output_text(event)
            author.take(event, text)
            book.settings.take(event, text, book.runs)
            if text and not _is_document(event):
                book._take(event, text, memory, author)
        return book

    def at_lines(self, lines: Sequence[int]) -> list[tuple[Series, list[Point]]]:
        """Series with points at these lines, and those points."""
        found: dict[SeriesKey, list[Point]] = {}
        for line in sorted(set(lines)):
            for key, point in self._by_line.get(line, ()):
                found.setdefault(key, []).append(point)
        return [(self.series[key], points) for key, points in found.items()]

    def training(self, axis: Axis = Axis.STEP) -> list[Series]:
        """Series over training steps (or epochs) that are not settings."""
        return [one for one in self.series.values() if one.key.axis is axis and not one.key.setting]

    def launch_at(self, run: str | None, line: int) -> int:
        """Which launch of the run a line lies behind, from 1; 0 where none is in the session.

        Without a run: which launch of any, so that numbers of two trainings are never one series.
        """
        before = [launch for launch in self.launches if launch.line < line]
        return sum(1 for launch in before if run is None or launch.run == run)

    def _asked(self, event: Event) -> list[str]:
        """Runs that a call's input names, by id or by the log file that a launch before it writes."""
        asked = input_text(event)
        named = named_runs(asked, self.runs)
        if named:
            return named
        logs = {launch.log: launch.run for launch in self.launches if launch.log and launch.line < event.line}
        return sorted({run for log, run in logs.items() if run is not None and log in asked})

    def _take(self, event: Event, text: str, memory: TableMemory, author: Authorship) -> None:
        lines = lines_of(text)
        readings = read_all(lines, memory)
        if not readings:
            return
        runs = RunOfRow(lines, self._asked(event), self.runs)
        for reading in readings:
            if self._points >= MAX_POINTS:
                return
            if author.may_be_missing(reading):
                continue
            run = event.run_id or reading.run or runs.at(reading.row)
            launch = self.launch_at(run, event.line)
            split = split_of_name(reading.name) or (TRAIN if reading.axis in (Axis.STEP, Axis.EPOCH) else None)
            key = SeriesKey(
                reading.name, None if reading.setting else split, run, reading.axis, launch, reading.setting
            )
            series = self.series.setdefault(key, Series(self.session, key))
            if reading.setting:
                self.settings.printed(run, reading.name, reading.printed, event.line)
            point = Point(reading, event.line, author.own(reading, lines[reading.row]))
            series.points.append(point)
            self._by_line.setdefault(event.line, []).append((key, point))
            self._points += 1
            if reading.axis is Axis.STEP:
                known = max(int(reading.step or 0), reading.total or 0)
                place = (run, launch)
                self.steps_of_run[place] = max(known, self.steps_of_run.get(place, 0))
                if reading.total is not None:
                    self.planned_steps[place] = max(reading.total, self.planned_steps.get(place, 0))


def _is_document(event: Event) -> bool:
    """Whether the output shows a text or a program instead of what a program printed."""
    if event.tool in WRITERS:
        return True
    path = read_path(event) if event.tool == "Read" else None
    if path is None:
        shown = _READS_A_FILE.match(command_of(event))
        path = shown[1] if shown is not None else None
    return path is not None and path.endswith(DOCUMENT_SUFFIXES)
