"""Finishing an install of a package that was interrupted. The files wait beside the bank, a journal names them."""

import os
import shutil
from pathlib import Path

from skill_bank.files import read_json
from skill_bank.types import BankError, Problem
from skill_bank.versions import sha256

JOURNAL = "package-install.json"
STAGING = ".package-install"


def finish_install(root: Path) -> None:
    """Finishes or takes back what a killed install left. The caller holds the bank's lock. Raises BankError."""
    journal, staging = root / JOURNAL, root / STAGING
    if not journal.exists():
        for left in (*root.glob(f".*-{STAGING}*"), staging):  # what `replace_folder` was making, or had made
            if left.exists():
                shutil.rmtree(left)
        for unfinished in root.glob(f".{JOURNAL}.*.tmp"):
            unfinished.unlink(missing_ok=True)
        return
    try:
        files: dict[str, str] = dict(read_json(journal)["files"])
    except (ValueError, KeyError, TypeError) as error:
        damaged = "the journal of an install that was interrupted cannot be read"
        raise BankError([Problem(JOURNAL, 0, damaged, "Remove it and install the package again")]) from error
    for path in sorted(files, key=lambda one: (one == "bank.yaml", one.endswith("/manifest.yaml"), one)):
        target, source = root / path, staging / path
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, target)
        elif not target.exists() or sha256(target.read_bytes()) != files[path]:
            gone = f"an interrupted install cannot be finished: {STAGING}/{path} is gone"
            raise BankError([Problem(JOURNAL, 0, gone, "Remove the journal and install the package again")])
    journal.unlink()
    shutil.rmtree(staging, ignore_errors=True)
