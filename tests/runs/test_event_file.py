"""TensorBoard event files, read back by a reader of the two formats that shares nothing with the writer."""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.runs.event_file import FOLDER, EventFile, crc32c, record, scalar_event, scalars_of


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # RFC 3720 B.4 gives the first three (in the order of bytes on the wire); the last is the usual check value
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_the_checksum_is_crc32c(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc
    assert crc32c(data) != zlib.crc32(data) or not data


def test_a_record_byte_by_byte() -> None:
    """Worked out by hand: step 3, tag `a`, 0.5 (float32 00 00 00 3f), wall time 0."""
    event = scalar_event(0.0, 3, {"a": 0.5})
    value = b"\x0a\x01a\x15\x00\x00\x00\x3f"
    assert event == b"\x09" + bytes(8) + b"\x10\x03" + b"\x2a\x0a" + b"\x0a\x08" + value
    assert record(event)[:8] == struct.pack("<Q", len(event))
    assert record(event)[12:-4] == event


def read_records(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        body = data[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", data, at + 8)[0] == unmasked_check(data[at : at + 8])
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == unmasked_check(body)
        yield body
        at += length + 16


def unmasked_check(data: bytes) -> int:
    """CRC-32C bit by bit and TensorFlow's mask: rotated right by 15, plus a constant."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return (((value >> 15) | (value << 17)) % 2**32 + 0xA282EAD8) % 2**32


def fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """(number, value) of a protocol buffer message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        size = {0: None, 1: 8, 5: 4, 2: -1}[key & 7]
        if size is None:
            yield key >> 3, varint()
            continue
        length = varint() if size == -1 else size
        yield key >> 3, data[at : at + length]
        at += length


def points(folder: Path) -> list[tuple[int, str, float]]:
    """(step, tag, value) of all event files, the file version checked."""
    found = []
    for path in sorted(folder.glob("*tfevents*")):
        first, *rest = read_records(path.read_bytes())
        assert dict(fields(first))[3] == b"brain.Event:2"
        for event in rest:
            parts = dict(fields(event))
            step = parts.get(2, 0)
            assert isinstance(step, int)
            summary = parts[5]
            assert isinstance(summary, bytes)
            for _, value in fields(summary):
                assert isinstance(value, bytes)
                inner = dict(fields(value))
                tag, number = inner[1], inner[2]
                assert isinstance(tag, bytes)
                assert isinstance(number, bytes)
                found.append((step, tag.decode(), struct.unpack("<f", number)[0]))
    return found


tags = st.text(min_size=1, max_size=40)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
steps = st.lists(
    st.tuples(st.integers(1, 2**40), st.dictionaries(tags, numbers, min_size=1, max_size=5)), min_size=1, max_size=5
)


@given(steps)
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rows: list) -> None:  # type: ignore[type-arg]
    folder = tmp_path_factory.mktemp("run")
    writer = EventFile(folder)
    for step, values in rows:
        writer.add(step, values)
    assert points(folder / FOLDER) == [(step, tag, value) for step, values in rows for tag, value in values.items()]


def test_only_what_was_measured_has_a_point() -> None:
    row = {"step": 7, "reward_mean": 0.5, "loss": math.nan, "kl": None, "update_skipped": True, "tokens": 10**60}
    row |= {"seconds": {"generate": 1, "other": math.inf}}
    assert scalars_of(row) == {"train/reward_mean": 0.5, "seconds/generate": 1.0}


def test_a_folder_that_cannot_be_written_ends_the_curves_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file stands where the folder should be")
    writer = EventFile(tmp_path)
    writer.add(1, {"a": 1.0})
    assert writer.problem is not None
    (tmp_path / FOLDER).unlink()
    writer.add(2, {"a": 1.0})
    assert not (tmp_path / FOLDER).exists()


def test_a_full_disk_ends_the_curves_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = EventFile(tmp_path)
    writer.add(1, {"a": 1.0})
    before = points(tmp_path / FOLDER)

    def full(*arguments: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("builtins.open", full)
    writer.add(2, {"a": 1.0})
    monkeypatch.undo()
    assert writer.problem is not None
    assert "No space left" in writer.problem
    assert points(tmp_path / FOLDER) == before
