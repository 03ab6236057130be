"""Sets made in this process, and the made-up shop's problems."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from shop_world import PRICES

from skill_bank.files import write_json_atomic
from trainer.config import TrainingConfig
from trainer.datafiles import Row
from trainer.generation.folder import SetFolder
from trainer.generation.produce import Producer
from trainer.generation.types import Explorer, GenerationPlan
from trainer.world import open_world

HERE = Path(__file__).parent


def nothing(doing: str, done: int, of: int) -> None:
    """Tells nobody."""


def folder_for(where: Path, name: str = "made", **plan: Any) -> SetFolder:
    """A folder with a plan; `config` is a mapping."""
    folder = SetFolder(where / name)
    folder.path.mkdir(parents=True)
    config = TrainingConfig.model_validate({"problems": 16, "folder": str(HERE), **plan.pop("config", {})})
    values = {"count": 12, "originals": config.problems, "explorer": Explorer.SCRIPTED, "calls": 200} | plan
    document = GenerationPlan(set_id="made", created_at=0.0, config=config, **values)
    write_json_atomic(folder.plan_path, document.model_dump(mode="json"))
    return folder


def produce(folder: SetFolder, tell: Callable[[str, int, int], None] = nothing) -> Any:
    """Carries out the plan of a folder here. Returns the manifest."""
    plan = folder.read_plan()
    return Producer(folder, plan, open_world(plan.config, folder.path), tell).run()


def contents(folder: SetFolder) -> tuple[bytes, bytes, bytes]:
    """The bytes of a finished set."""
    return tuple(  # type: ignore[return-value]
        path.read_bytes() for path in (folder.tasks_path, folder.provenance_path, folder.manifest_path)
    )


def purchase(count: int, item: str, branch: str) -> Row:
    """One problem of the shop."""
    return {
        "prompt": f"Buy {count} pieces of {item} and pay.",
        "total": count * PRICES[branch][item],
        "branch": branch,
        "notes": ["a list"],
    }


def purchases(counts: Sequence[int] = (2, 3, 5, 8), branches: Sequence[str] = ("North", "South")) -> list[Row]:
    """Problems of the shop; every count with every item."""
    return [purchase(n, item, branch) for n in counts for branch in branches for item in PRICES[branch]]


def write_rows(path: Path, rows: Sequence[Row]) -> Path:
    """A data file."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path
