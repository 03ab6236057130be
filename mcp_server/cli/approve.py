"""`mcp-evo approve` and `mcp-evo reject`: a person's decision, about a patch or about the next run of a campaign, in a
terminal of their own."""

import sys
from typing import Annotated

import typer

from mcp_server.cli.campaign import ask_about
from mcp_server.cli.context import CliState, CommandError
from mcp_server.cli.optimizing import (
    JsonOption,
    console_for,
    home_of,
    print_json,
    refuses_clearly,
    show_patch,
)
from mcp_server.cli.standing import grant_standing, show_standing
from optimizer.approvals import TYPED_CHARACTERS, Channel, check_terminal, digest_typed
from optimizer.campaign.machine import answer_campaign, digest_of
from optimizer.campaign.report import campaign_document
from optimizer.campaign.store import CampaignStore
from optimizer.home import Home
from optimizer.promote import approve as record_approval
from optimizer.promote import check_may_approve, promote, proposed
from optimizer.promote import reject as record_rejection
from optimizer.round_types import Answer

PatchId = Annotated[str, typer.Argument(help="Id of the patch, or of a campaign whose next run waits.")]


def register(app: typer.Typer) -> None:
    """Adds both commands."""
    app.command("approve")(refuses_clearly(approve))
    app.command("reject")(refuses_clearly(reject))


def _answer_campaign(
    state: CliState, home: Home, campaign_id: str, *, reason: str | None, as_json: bool, refuse: bool = False
) -> None:
    """What the person says about the next run of a campaign. A refusal needs no terminal, as that of a patch."""
    store, console = CampaignStore(home.root), console_for(as_json)
    with store.carrying_on(campaign_id):
        campaign = store.read(campaign_id)
        digest_of(campaign)  # refuses where no run waits
        if refuse:
            answer = Answer("reject", Channel.TERMINAL, reason)
        else:
            check_terminal(sys.stdin.isatty())
            answer = ask_about(campaign, console)
            if answer.decision == "later":
                raise CommandError("nothing was decided.")
            answer = Answer(answer.decision, answer.channel, reason or answer.reason)
        campaign = answer_campaign(home, store, campaign, answer)
    if as_json:
        print_json(campaign_document(campaign))
        return
    console.print(f"{answer.decision}: noted", markup=False)
    console.print(f"go on with: {state.command('train', '--auto', '--resume', campaign_id)}", markup=False)


def approve(
    context: typer.Context,
    patch_id: Annotated[
        str, typer.Argument(help="Id of the patch, or of a campaign whose next run waits.", show_default=False)
    ] = "",
    standing: Annotated[
        bool, typer.Option("--standing", help="Grant beforehand what automatic rounds find better; see --max.")
    ] = False,
    layer: Annotated[str, typer.Option(help="Of a standing approval: group of skills (rllm, traj).")] = "rllm",
    verdict: Annotated[str, typer.Option(help="Of a standing approval: verdict of the patches.")] = "better",
    most: Annotated[int, typer.Option("--max", help="Of a standing approval: patches at most.")] = 1,
    expires: Annotated[str, typer.Option(help="Of a standing approval: how long, for instance 8h.")] = "8h",
    list_standing: Annotated[bool, typer.Option("--list", help="List the standing approvals.")] = False,
    revoke: Annotated[str | None, typer.Option(metavar="ID", help="Revoke a standing approval.")] = None,
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Approve without the verdict better; give --reason.")
    ] = False,
    reason: Annotated[str | None, typer.Option(help="Stays in the audit log and the skill's history.")] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Approve a patch and put it in force. Asks for the beginning of its digest; needs a person at a terminal."""
    home = home_of(context)
    if list_standing or revoke is not None:
        show_standing(home, revoke, as_json)
        return
    if standing:
        if patch_id:
            raise CommandError(f"--standing grants patches to come, not {patch_id}: leave out one of the two")
        grant_standing(home, home.standing.draft(layer, most, expires, verdict), as_json)
        return
    if not patch_id:
        raise typer.BadParameter("name a patch (`mcp-evo patches list`), or use --standing", param_hint="PATCH_ID")
    if CampaignStore(home.root).exists(patch_id):
        _answer_campaign(context.obj, home, patch_id, reason=reason, as_json=as_json)
        return
    record = home.patches.read(patch_id)
    check_may_approve(record, unproven=unproven, reason=reason)
    check_terminal(sys.stdin.isatty())
    console = console_for(as_json)
    seen = proposed(home, record)
    show_patch(console, home, record, seen.diff)
    digest = seen.digests.result
    console.print(f"  digest     {digest}", markup=False)
    typed = typer.prompt(
        f"Type its first {TYPED_CHARACTERS} characters to approve", default="", show_default=False, err=True
    )
    if not digest_typed(typed, digest):
        raise CommandError("that is not the beginning of the digest: nothing was approved.")
    record_approval(home, patch_id, Channel.TERMINAL, reason=reason, unproven=unproven, shown=seen.digests)
    done = promote(home, patch_id)
    if as_json:
        print_json({"patch_id": patch_id, "version": done.version, "approval_id": done.approval.approval_id})
    else:
        console.print(f"promoted {patch_id}: now {done.version}", style="green", markup=False)


def reject(
    context: typer.Context,
    patch_id: PatchId,
    reason: Annotated[str, typer.Option(help="Why; it is remembered and the same change is not proposed again.")],
    as_json: Annotated[bool, JsonOption] = False,
) -> None:
    """Reject a patch; its effect is remembered with the reason. Of a campaign: no further run."""
    home = home_of(context)
    if CampaignStore(home.root).exists(patch_id):
        _answer_campaign(context.obj, home, patch_id, reason=reason, as_json=as_json, refuse=True)
        return
    record = record_rejection(home, patch_id, Channel.TERMINAL, reason)
    if as_json:
        print_json({"patch_id": patch_id, "stage": str(record.stage)})
    else:
        console_for(False).print(f"rejected {patch_id}; it will not be proposed again", markup=False)
