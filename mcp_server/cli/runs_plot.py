"""`mcp-evo runs plot`: the curves of runs in the terminal, or as a PNG."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mcp_server.cli.context import CliState, CommandError, to_stdout
from skill_bank.files import write_bytes_atomic
from trainer.runs.plots import curves_of, plot_lines
from trainer.runs.plots_png import png_of
from trainer.runs.registry import LATEST, find_run


def plot_command(
    context: typer.Context,
    run_ids: Annotated[list[str] | None, typer.Argument(metavar="[ID …]", help="Runs; the latest by default.")] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Write an image (needs the extra plots).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The drawn numbers as one JSON document.")] = False,
) -> None:
    """Draw reward with its band, entropy, lengths and the time of the phases."""
    state: CliState = context.obj
    workspace = state.existing()
    curves = [curves_of(find_run(workspace, one).directory) for one in run_ids or [LATEST]]
    if png is not None:
        if png.suffix.lower() != ".png":
            raise CommandError(f"--png {png}: the file must end in .png.")
        image = png_of(curves)
        try:
            write_bytes_atomic(png.absolute(), image)
        except OSError as error:
            raise CommandError(f"--png {png} cannot be written: {error.strerror or error}") from error
    if as_json:
        document = {"runs": [{**asdict(one), **_evals(one.before, one.after)} for one in curves]}
        print(json.dumps({**document, "png": None if png is None else str(png.absolute())}, ensure_ascii=False))
        return
    console = to_stdout()
    if png is not None:
        console.print(f"written: {png.absolute()}", markup=False)
        return
    for number, one in enumerate(curves):
        if number:
            console.print()
        for line in plot_lines(one, width=console.width):
            console.print(line, markup=False)


def _evals(before: object, after: object) -> dict[str, object]:
    from trainer.runs.types import Eval

    return {
        name: value.model_dump(mode="json") if isinstance(value, Eval) else None
        for name, value in (("before", before), ("after", after))
    }
