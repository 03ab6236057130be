"""`mcp-evo runs export`: one run as a single file that another machine can read."""

import json
from pathlib import Path
from typing import Annotated

import typer

from mcp_server.cli.context import CliState, CommandError, to_stdout
from trainer.runs.registry import LATEST, find_run

SUFFIX = ".tar.gz"


def export_command(
    context: typer.Context,
    run_id: Annotated[str, typer.Argument(help="Id of the run, the beginning of one, or latest.")] = LATEST,
    out: Annotated[Path | None, typer.Option(help="File to write; left out: <run>.tar.gz in this folder.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="What was written, on stdout.")] = False,
) -> None:
    """Write one run that has ended as an archive: configuration, metrics, events, analysis, episodes, log, skills.

    Secrets are redacted. Weights and checkpoints stay where they are; `package.json` in it names them.
    """
    from optimizer.home import Home
    from optimizer.packaging import redactor_of, task_draft
    from skill_bank.files import write_bytes_atomic
    from skill_bank.packages.archive import pack
    from skill_bank.packages.types import PackageError

    cli: CliState = context.obj
    workspace = cli.existing()
    run = find_run(workspace, run_id)
    path = (out or Path(f"{run.document.run_id}{SUFFIX}")).absolute()
    if not path.name.endswith(SUFFIX):
        raise CommandError(f"{path.name} must end in {SUFFIX}: that is what is written.")
    if path.exists() and not force:
        raise CommandError(f"{path} exists; name another file, or add --force.")
    try:
        draft = task_draft(Home.open(workspace.root), run.document.run_id, run.document.run_id)
        data, manifest = pack(draft, redactor_of(workspace.root))
        write_bytes_atomic(path, data)
    except PackageError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"{path} cannot be written ({error.strerror or error}).") from error
    names = [one.path for one in manifest.contents]
    if as_json:
        size = len(data)
        document = {"run_id": run.document.run_id, "file": str(path), "size_bytes": size, "files": names}
        print(json.dumps({**document, "facts": manifest.facts}, ensure_ascii=False))
        return
    redacted = sum(one.redacted for one in manifest.contents)
    left = ", ".join(manifest.facts.get("left_in_place", [])) or "nothing"
    to_stdout().print(
        f"{path}: {len(names)} files, {len(data):,} bytes, {redacted} secrets redacted; left in place: {left}",
        markup=False,
    )
