"""A new bank from the shipped one."""

from pathlib import Path

from skill_bank.files import write_bytes_atomic
from skill_bank.types import BankError, Problem

SHIPPED = Path(__file__).parent / "bank"
"""The bank that comes with the package."""


def copy_shipped(dest: Path) -> None:
    """Puts the files of the shipped bank into `dest`; bank.yaml, which makes it a bank, comes last.

    So a copy that was interrupted is finished by the next one. A file that is there and differs is somebody else's:
    then nothing is copied and BankError says so.
    """
    sources = {
        path.relative_to(SHIPPED): path
        for path in sorted(SHIPPED.rglob("*"))
        if path.is_file() and path.suffix in (".md", ".yaml", ".json") and "versions" not in path.parts
    }
    for name, path in sources.items():
        target = dest / name
        if target.exists() and target.read_bytes() != path.read_bytes():
            message = f"{dest} holds no bank.yaml and has another '{name.as_posix()}'"
            raise BankError([Problem(name.as_posix(), 0, message, "Name an empty folder, or remove it")])
    for name in sorted(sources, key=lambda one: (one.name == "bank.yaml", one)):
        (dest / name).parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(dest / name, sources[name].read_bytes())
