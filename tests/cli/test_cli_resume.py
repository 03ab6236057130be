"""`mcp-evo runs resume`: what a killed run becomes, and what cannot be resumed."""

import json
from typing import Any

from test_cli_train import REQUEST, script


def test_a_killed_run_goes_on_as_a_new_one(cli: Any) -> None:
    script(cli, fault="kill", at=2, steps=4)
    killed = cli.run("train", REQUEST, "--id", "first", "--json")
    assert (killed.returncode, json.loads(killed.stdout)["state"]) == (1, "failed")
    script(cli, steps=4)
    done = cli.run("runs", "resume", "first", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["state"] == "finished"
    assert "from the beginning: it left no complete checkpoint" in done.stderr
    shown = json.loads(cli.run("runs", "show", document["run_id"], "--json").stdout)
    assert (shown["parent_run"], shown["request"]) == ("first", REQUEST)
    old = json.loads(cli.run("runs", "show", "first", "--json").stdout)
    assert old["state"] == "failed"


def test_a_finished_run_and_an_unknown_one_are_refused(cli: Any) -> None:
    script(cli, steps=2)
    assert cli.run("train", REQUEST, "--id", "first").returncode == 0
    refused = cli.run("runs", "resume", "first")
    assert refused.returncode == 1
    assert "start a new run with model=" in refused.stderr
    missing = cli.run("runs", "resume", "frist")
    assert missing.returncode == 1
    assert "Did you mean first?" in missing.stderr
    assert json.loads(cli.run("runs", "list", "--json").stdout)["total"] == 1
