"""TensorBoard event files: the curves of a run for the viewer that people already have. Free of torch.

1. A file is a row of records (TFRecord: length, CRC of the length, bytes, CRC of the bytes), a record is an `Event`
   (protocol buffer) with the scalars of one step. Formats: tensorflow/core/lib/io/record_writer.h and
   tensorflow/core/util/event.proto; CRC-32C by RFC 3720, appendix B.4, masked as the first of them says.
2. Written here and not by a package, because the curves must never cost a run: SummaryWriter queues events for a thread
   of its own, and a full disk that ends the thread blocks the trainer for ever; it also puts the machine's name into
   the file's. A writer that failed once writes nothing more: behind half a record a reader finds no other.
3. Only finite numbers are written: what was not measured has no point in a curve.
"""

import math
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "tensorboard"
"""In a run directory; `tensorboard --logdir RUNS` finds it by the file's name."""

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8


def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (_POLYNOMIAL if number & 1 else 0)
        table.append(number)
    return table


_CRC = _table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) of `data`."""
    value = 0xFFFFFFFF
    for byte in data:
        value = _CRC[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """`data` as one TFRecord."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", _masked(length)) + data + struct.pack("<I", _masked(data))


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def scalar_event(wall_time: float, step: int, values: Mapping[str, float]) -> bytes:
    """An `Event` with one scalar for each tag."""
    summary = b"".join(_field(1, _field(1, tag.encode()) + b"\x15" + struct.pack("<f", v)) for tag, v in values.items())
    return b"\x09" + struct.pack("<d", wall_time) + b"\x10" + _varint(step) + _field(5, summary)


def version_event(wall_time: float) -> bytes:
    """The `Event` that a file begins with."""
    return b"\x09" + struct.pack("<d", wall_time) + _field(3, b"brain.Event:2")


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def scalars_of(row: Mapping[str, Any]) -> dict[str, float]:
    """Tag → value of a metrics line: `train/reward_mean`, …, and `seconds/generate`, … for the phases of the step."""
    values = {f"train/{name}": value for name, value in row.items() if name != "step"}
    phases = row.get("seconds")
    if isinstance(phases, Mapping):
        values |= {f"seconds/{name}": value for name, value in phases.items()}
    return {tag: float(value) for tag, value in values.items() if _is_finite(value)}


def _is_finite(value: Any) -> bool:
    """A number that a float32 holds, too."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 3.4e38 and value == value


class EventFile:
    """The event file of one run, begun by the first value."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / FOLDER
        self._path: Path | None = None
        self.problem: str | None = None
        """Why nothing is written any more."""

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Adds the scalars of a step. Never raises: see rule 2 of the module."""
        if self.problem is not None or not values:
            return
        now = time.time()
        data = record(scalar_event(now, step, values))
        try:
            if self._path is None:
                self.folder.mkdir(exist_ok=True)
                # a process that goes on in the same folder begins a file of its own: viewers read all of them
                self._path = self.folder / f"events.out.tfevents.{math.floor(now)}.{time.monotonic_ns() % 10**9}.v2"
                data = record(version_event(now)) + data
            with open(self._path, "ab", buffering=0) as stream:
                written = stream.write(data)
            if written != len(data):
                self.problem = f"{self._path}: only {written} of {len(data)} bytes fitted"
        except OSError as error:
            self.problem = f"{self._path or self.folder}: {error.strerror or error}"
