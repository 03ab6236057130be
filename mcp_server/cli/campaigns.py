"""`mcp-evo campaigns`: list, show."""

from typing import Annotated

import typer

from mcp_server.cli.campaign import show_campaign
from mcp_server.cli.optimizing import (
    JsonOption,
    console_for,
    home_of,
    plain_table,
    print_json,
    print_table,
    refuses_clearly,
)
from optimizer.campaign.decide import best_of
from optimizer.campaign.report import campaign_document, success_text
from optimizer.campaign.store import LATEST, CampaignStore


def register(app: typer.Typer) -> None:
    """Adds the group."""
    group = typer.Typer(help="Campaigns: training that goes on by itself (mcp-evo train --auto).", no_args_is_help=True)
    group.command("list")(refuses_clearly(list_command))
    group.command("show")(refuses_clearly(show_command))
    app.add_typer(group, name="campaigns")


def list_command(context: typer.Context, as_json: Annotated[bool, JsonOption] = False) -> None:
    """List all campaigns of the workspace."""
    store = CampaignStore(home_of(context).root)
    found = [store.read(one) for one in store.ids()]
    if as_json:
        documents = [campaign_document(one, running=store.is_carried_on(one.campaign_id)) for one in found]
        print_json({"campaigns": documents, "total": len(documents)})
        return
    console = console_for(False)
    if not found:
        console.print('no campaigns yet; start with: mcp-evo train "…" --auto', markup=False)
        return
    table = plain_table("campaign", "state", "verdict", "runs", "best run", "test success")
    for one in found:
        best = best_of(one.runs)
        table.add_row(
            one.campaign_id,
            str(one.state),
            "–" if one.verdict is None else str(one.verdict),
            str(len(one.runs)),
            "–" if best is None else best.run_id,
            success_text(None if best is None else best.success),
        )
    print_table(console, table)


def show_command(
    context: typer.Context,
    campaign_id: Annotated[str, typer.Argument(help="Id of the campaign, or latest.")] = LATEST,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Show a campaign: its runs, why each change was made, how it ended."""
    store = CampaignStore(home_of(context).root)
    campaign = store.read(campaign_id)
    if as_json:
        print_json(campaign_document(campaign, running=store.is_carried_on(campaign.campaign_id)))
    else:
        show_campaign(console_for(False), campaign, context.obj)
