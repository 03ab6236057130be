"""`mcp-evo setup`: other people's configuration keeps every byte, and a removal leaves no trace."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_server.cli import main
from mcp_server.cli import setup as command
from mcp_server.setup import files
from mcp_server.setup.entries import (
    EVENTS,
    hook_command,
    hook_group,
    our_hook_events,
    our_servers,
    with_hooks,
    with_server,
    without_hooks,
    without_server,
)
from mcp_server.setup.json_edit import JsonTextError, append_item, parse, remove, set_member
from mcp_server.setup.targets import claude_code, claude_desktop
from mcp_server.setup.types import Connection, Scope, SetupError

Run = Callable[..., Any]

CONNECTION = Connection("/opt/x/bin/mcp-evo", "/opt/x/bin/mcp-evo-hook", Path("/work/p/.mcp-evo"))

SETTINGS = """{
    // nothing here
}
"""

OTHERS = """{
\t"permissions": {"allow": ["Bash(ls:*)", "Read"], "deny": []},
\t"hooks": {
\t\t"PostToolUse": [
\t\t\t{ "matcher": "Edit|Write", "hooks": [ {"type": "command", "command": "prettier --write"} ] }
\t\t],
\t\t"Stop": [{"hooks": [{"type": "command", "command": "say done", "timeout": 1e1}]}]
\t},
\t"model": "opus", "é": "\\u00e9"
}"""

SERVERS = """{
  "mcpServers": {
    "github": {"command": "npx", "args": ["-y", "@x/github"], "env": {"TOKEN": "t"}}
  },
  "other": [1, 2.50, 3e2]
}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of its own, and a home of its own."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("MCP_EVO_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(project)
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name in ("mcp-evo", "mcp-evo-hook"):
        (binaries / name).write_text("#!/bin/sh\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", [str(binaries / "mcp-evo")])
    return project


@pytest.fixture
def run(place: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `mcp-evo setup …` in this process: (exit code, stdout, stderr)."""

    def run_it(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main.run(["setup", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_it


def tree(folder: Path) -> dict[str, bytes]:
    """Every file and folder but the workspace."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not name.startswith(".mcp-evo"):
            found[name] = path.read_bytes() if path.is_file() else b"<folder>"
    return found


# ---- the entries


def test_the_hooks_are_as_documented() -> None:
    document = json.loads(with_hooks("{}", hook_command(CONNECTION)))
    assert list(document) == ["hooks"]
    assert set(document["hooks"]) == {
        *("PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop"),
        *("SubagentStart", "SubagentStop", "SessionStart", "SessionEnd"),
    }
    handler = {"type": "command", "command": "/opt/x/bin/mcp-evo-hook", "timeout": 30}
    for event, groups in document["hooks"].items():
        matched = {"matcher": "*"} if event in ("PostToolUse", "PostToolUseFailure") else {}
        waited_for = event in ("Stop", "SubagentStop", "SessionEnd")
        assert groups == [{**matched, "hooks": [handler if waited_for else {**handler, "async": True}]}]


def test_a_hook_that_would_not_find_its_workspace_is_told() -> None:
    away = Connection("/b/mcp-evo", "/my tools/mcp-evo-hook", Path("/else where/ws"), True)
    assert hook_command(away) == "MCP_EVO_HOME='/else where/ws' '/my tools/mcp-evo-hook'"
    assert our_hook_events(with_hooks("{}", hook_command(away)))["Stop"] == hook_command(away)


def test_the_server_is_as_documented() -> None:
    for typed, more in ((True, {"type": "stdio"}), (False, {})):
        document = json.loads(with_server("{}", CONNECTION, typed=typed))
        entry = {"command": "/opt/x/bin/mcp-evo", "args": ["serve"], "env": {"MCP_EVO_HOME": "/work/p/.mcp-evo"}}
        assert document == {"mcpServers": {"evo": {**more, **entry}}}


def test_what_a_person_added_to_our_server_stays() -> None:
    mine = {"command": "/old/mcp-evo", "args": ["serve", "--verbose"], "env": {"HF_HOME": "/m"}, "timeout": 60000}
    entry = json.loads(with_server(json.dumps({"mcpServers": {"evo": mine}}), CONNECTION))["mcpServers"]["evo"]
    assert entry["args"] == ["serve", "--verbose"]
    assert entry["env"] == {"HF_HOME": "/m", "MCP_EVO_HOME": "/work/p/.mcp-evo"}
    assert (entry["command"], entry["timeout"]) == ("/opt/x/bin/mcp-evo", 60000)


def test_another_server_of_that_name_is_left_alone() -> None:
    with pytest.raises(SetupError, match=r"another server.*--name"):
        with_server('{"mcpServers": {"evo": {"command": "evolution"}}}', CONNECTION)


@pytest.mark.parametrize("text", ["{}", "{}\n", "{ }", OTHERS, OTHERS.replace("\n", "\r\n"), SERVERS])
def test_in_and_out_again_is_the_same_text(text: str) -> None:
    hooks = with_hooks(text, "/opt/x/bin/mcp-evo-hook")
    both = with_server(hooks, CONNECTION)
    assert with_hooks(both, "/opt/x/bin/mcp-evo-hook") == both
    assert with_server(both, CONNECTION) == both
    assert set(our_hook_events(both)) == set(EVENTS)
    assert our_servers(both) == ["evo"]
    back = without_server(without_hooks(both))
    assert back == ("{}" if text == "{ }" else text)
    assert ("\r\n" in text) == ("\r\n" in both)
    assert "\r\n" not in text or "\n" not in both.replace("\r\n", "")


def test_an_older_hook_is_replaced_and_mixed_groups_keep_the_rest() -> None:
    old = with_hooks(OTHERS, "/old/bin/mcp-evo-hook")
    new = with_hooks(old, "/opt/x/bin/mcp-evo-hook")
    assert set(our_hook_events(new).values()) == {"/opt/x/bin/mcp-evo-hook"}
    assert new.count("mcp-evo-hook") == len(EVENTS)
    other = {"type": "command", "command": "say hi"}
    ours = {"type": "command", "command": "MCP_EVO_HOME=/x /old/mcp-evo-hook"}
    mixed = json.dumps({"hooks": {"Stop": [{"hooks": [ours, other]}]}})
    assert json.loads(without_hooks(mixed)) == {"hooks": {"Stop": [{"hooks": [other]}]}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"hooks": []}', "`hooks` must be an object"),
        ('{"hooks": {"Stop": {}}}', "`hooks.Stop` must be a list"),
        ("[]", "one JSON object"),
    ],
)
def test_another_format_is_refused(text: str, expected: str) -> None:
    with pytest.raises(SetupError, match=expected):
        with_hooks(text, "x")
    with pytest.raises(SetupError, match=r"must be an object|one JSON object"):
        with_server('{"mcpServers": []}' if text != "[]" else text, CONNECTION)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), st.sampled_from([None, 1, 2, 4, "\t"]), VALUES)
def test_edits_change_what_they_say_and_undo_each_other(document: dict[str, Any], indent: Any, value: Any) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    assert parse(text).value == document
    key = "new key"
    after = set_member(text, (key,), value)
    assert json.loads(after) == {**document, key: value}
    assert remove(after, (key,)) == text
    for name, old in document.items():
        assert json.loads(set_member(text, (name,), value)) == {**document, name: value}
        assert json.loads(remove(text, (name,))) == {one: two for one, two in document.items() if one != name}
        if isinstance(old, list):
            longer = append_item(text, (name,), value)
            assert json.loads(longer) == {**document, name: [*old, value]}
            assert json.loads(remove(longer, (name, len(old)))) == document


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='{}[]:,"\\ \n01e-.truefalsn/*a', max_size=30) | st.text(max_size=20))
def test_parsing_agrees_with_json(text: str) -> None:
    try:
        expected = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        with pytest.raises(JsonTextError):
            parse(text)
        return
    twice = _has_a_key_twice(text)
    if twice:
        with pytest.raises(JsonTextError, match="twice"):
            parse(text)
    else:
        assert parse(text).value == expected


def _has_a_key_twice(text: str) -> bool:
    found = []
    json.loads(text, object_pairs_hook=lambda pairs: found.append(len(pairs) != len(dict(pairs))))
    return any(found)


def _refuse(name: str) -> Any:
    raise ValueError(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{\n  // c\n  "a": 1}', "line 2, column 3: comments are not JSON"),
        ('{"a": 1,}', "line 1, column 9: a key in quotation marks"),
        ('{"a": 1 "b": 2}', "a comma or } is missing"),
        ('{"a": 1, "a": 2}', "'a' stands there twice"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": 1}}', "something stands behind"),
        ('{"a', "Unterminated string"),
        ("", "ends too early"),
        ('{"a": NaN}', "a value is missing"),
    ],
)
def test_what_is_wrong_is_said(text: str, expected: str) -> None:
    with pytest.raises(JsonTextError, match=expected):
        parse(text)


# ---- the command


def test_a_project_is_connected_and_left_without_a_trace(place: Path, run: Run, tmp_path: Path) -> None:
    before = tree(place)
    code, out, _ = run("claude-code", "--yes", "--json")
    document = json.loads(out)
    assert (code, document["written"], document["action"]) == (0, True, "install")
    assert [change["action"] for change in document["changes"]] == ["create", "create"]
    hook = str(tmp_path / "bin" / "mcp-evo-hook")
    settings_text = (place / ".claude" / "settings.json").read_text(encoding="utf-8")
    assert json.loads(settings_text)["hooks"]["Stop"] == [hook_group("Stop", hook)]
    server = json.loads((place / ".mcp.json").read_text(encoding="utf-8"))["mcpServers"]["evo"]
    assert server["command"] == str(tmp_path / "bin" / "mcp-evo")
    assert server["env"] == {"MCP_EVO_HOME": str(place / ".mcp-evo")}
    assert (place / ".mcp-evo" / "config.yaml").is_file()
    assert (place / ".claude" / "skills" / "rllm-train" / "SKILL.md").is_file()
    assert {"rllm-train", "rllm-config"} <= set(document["skills"]["written"])
    first = tree(place)
    code, out, _ = run("claude-code", "--yes", "--json")
    assert (code, json.loads(out)["written"]) == (0, False)
    assert tree(place) == first
    code, out, _ = run("claude-code", "--remove", "--yes", "--json")
    assert (code, json.loads(out)["written"]) == (0, True)
    assert tree(place) == before
    code, out, _ = run("claude-code", "--remove", "--yes", "--json")
    assert (code, json.loads(out)["written"]) == (0, False)


def test_the_bytes_of_before_come_back(place: Path, run: Run) -> None:
    (place / ".claude").mkdir()
    (place / ".claude" / "settings.json").write_text(OTHERS, encoding="utf-8")
    (place / ".claude" / "settings.json").chmod(0o600)
    (place / ".mcp.json").write_text(SERVERS + "\n\n", encoding="utf-8")
    (place / ".claude" / "skills" / "mine").mkdir(parents=True)
    (place / ".claude" / "skills" / "mine" / "SKILL.md").write_text("mine", encoding="utf-8")
    before = tree(place)
    assert run("claude-code", "--yes")[0] == 0
    assert (place / ".claude" / "settings.json").stat().st_mode & 0o777 == 0o600
    assert (place / ".claude" / "settings.json.before-mcp-evo").stat().st_mode & 0o777 == 0o600
    assert (place / ".claude" / "settings.json.before-mcp-evo").read_bytes() == OTHERS.encode()
    assert run("claude-code", "--remove", "--yes")[0] == 0
    assert tree(place) == before


def test_what_others_wrote_since_stays(place: Path, run: Run) -> None:
    (place / ".mcp.json").write_text(SERVERS, encoding="utf-8")
    assert run("claude-code", "--yes", "--no-skills")[0] == 0
    path = place / ".mcp.json"
    path.write_text(set_member(path.read_text(encoding="utf-8"), ("added",), {"a": 1}), encoding="utf-8")
    settings_path = place / ".claude" / "settings.json"
    text = set_member(settings_path.read_text(encoding="utf-8"), ("model",), "opus")
    settings_path.write_text(text, encoding="utf-8")
    assert run("claude-code", "--remove", "--yes")[0] == 0
    assert path.read_text(encoding="utf-8") == set_member(SERVERS, ("added",), {"a": 1})
    assert json.loads(settings_path.read_text(encoding="utf-8")) == {"model": "opus"}
    assert sorted(one.name for one in place.rglob("*mcp-evo*") if ".mcp-evo" not in one.parts) == []


def test_an_update_keeps_the_first_backup(place: Path, run: Run, tmp_path: Path) -> None:
    (place / ".mcp.json").write_text(SERVERS, encoding="utf-8")
    before = tree(place)
    assert run("claude-code", "--yes", "--no-skills")[0] == 0
    shutil.copytree(tmp_path / "bin", tmp_path / "new")
    sys.argv[0] = str(tmp_path / "new" / "mcp-evo")
    _, out, _ = run("claude-code", "--yes", "--no-skills", "--json")
    assert [change["action"] for change in json.loads(out)["changes"]] == ["update", "update"]
    assert run("claude-code", "--remove", "--yes")[0] == 0
    assert tree(place) == before


def test_nothing_is_written_without_consent(place: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run("claude-code", "--no-skills")
    assert (code, "nobody to ask" in err, "--yes" in err) == (1, True, True)
    code, out, err = run("claude-code", "--dry-run", "--no-skills")
    assert (code, "nothing was written" in out) == (0, True)
    assert "+++" in err
    assert '"mcp-evo-hook' in err or "mcp-evo-hook" in err
    assert list(place.iterdir()) == []
    monkeypatch.setattr(command.sys.stdin, "isatty", lambda: True, raising=False)
    for answer, expected in ((False, 1), (True, 0)):
        monkeypatch.setattr(command.typer, "confirm", lambda *_, answer=answer, **__: answer)
        assert run("claude-code", "--no-skills")[0] == expected
        assert (place / ".mcp.json").exists() is answer


def test_user_scope(place: Path, run: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".claude.json").write_text('{"numStartups": 3, "oauthAccount": {"x": 1}}', encoding="utf-8")
    (home / ".claude.json").chmod(0o600)
    before = tree(home)
    code, out, _ = run("claude-code", "--user", "--yes", "--json")
    document = json.loads(out)
    assert (code, document["scope"], document["workspace"]) == (0, "user", None)
    state = json.loads((home / ".claude.json").read_text(encoding="utf-8"))
    assert state["numStartups"] == 3
    assert "env" not in state["mcpServers"]["evo"]
    assert (home / ".claude" / "settings.json").stat().st_mode & 0o777 == 0o600
    assert (home / ".claude" / "skills" / "rllm-train" / "SKILL.md").is_file()
    assert list(place.iterdir()) == []
    assert run("claude-code", "--user", "--remove", "--yes")[0] == 0
    assert tree(home) == before
    assert run("claude-code", "--user", "--project")[0] == 1


def test_hooks_of_both_scopes_that_differ_are_told(place: Path, run: Run, tmp_path: Path) -> None:
    assert run("claude-code", "--user", "--yes", "--no-skills")[0] == 0
    _, out, _ = run("claude-code", "--yes", "--no-skills", "--json")
    assert not any("recorded twice" in note for note in json.loads(out)["notes"])  # equal commands are run once
    _, out, _ = run("claude-code", "--dry-run", "--no-skills", "--json", "--workspace", str(tmp_path / "other"))
    assert any("recorded twice" in note for note in json.loads(out)["notes"])


def test_a_workspace_elsewhere_is_named_to_both(place: Path, run: Run, tmp_path: Path) -> None:
    other = tmp_path / "else where"
    assert run("claude-code", "--yes", "--no-skills", "--workspace", str(other))[0] == 0
    document = json.loads((place / ".claude" / "settings.json").read_text(encoding="utf-8"))
    line = document["hooks"]["Stop"][0]["hooks"][0]["command"]
    assert line == f"MCP_EVO_HOME='{other}' {tmp_path / 'bin' / 'mcp-evo-hook'}"
    assert (other / "config.yaml").is_file()


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_claude_desktop(place: Path, run: Run, tmp_path: Path, platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setattr("mcp_server.setup.targets.sys.platform", platform)
    folder = home / ".config" / "Claude" if platform == "linux" else home / "Library" / "Application Support" / "Claude"
    folder.mkdir(parents=True)
    path = folder / "claude_desktop_config.json"
    path.write_text(SERVERS, encoding="utf-8")
    before = tree(home)
    code, out, _ = run("claude-desktop", "--yes", "--json")
    document = json.loads(out)
    assert (code, document["skills"]["written"], document["hook"]) == (0, [], None)
    servers = json.loads(path.read_text(encoding="utf-8"))["mcpServers"]
    assert list(servers) == ["github", "evo"]
    assert servers["evo"] == {
        "command": str(tmp_path / "bin" / "mcp-evo"),
        "args": ["serve"],
        "env": {"MCP_EVO_HOME": str(home / ".mcp-evo")},
    }
    assert (home / ".mcp-evo" / "config.yaml").is_file()
    assert run("claude-desktop", "--remove", "--yes")[0] == 0
    assert tree(home) == before


def test_places_of_the_clients(tmp_path: Path) -> None:
    assert claude_desktop(environment={"XDG_CONFIG_HOME": "/c"}, home=tmp_path, platform="linux").servers == Path(
        "/c/Claude/claude_desktop_config.json"
    )
    named = claude_code(Scope.USER, tmp_path, environment={"CLAUDE_CONFIG_DIR": "/d"}, home=tmp_path)
    assert (named.hooks, named.servers) == (Path("/d/settings.json"), Path("/d/.claude.json"))
    plain = claude_code(Scope.USER, tmp_path, environment={}, home=tmp_path)
    assert (plain.hooks, plain.servers) == (tmp_path / ".claude" / "settings.json", tmp_path / ".claude.json")


def _comments(path: Path) -> None:
    path.write_text(SETTINGS, encoding="utf-8")


def _torn(path: Path) -> None:
    path.write_text('{"hooks": {', encoding="utf-8")


def _latin(path: Path) -> None:
    path.write_bytes(b'{"a": "\xe9"}')


def _link(path: Path) -> None:
    path.with_name("real.json").write_text("{}", encoding="utf-8")
    path.symlink_to(path.with_name("real.json"))


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _foreign(path: Path) -> None:
    path.write_text('{"hooks": {"Stop": "x"}, "mcpServers": {"evo": {"url": "http://x"}}}', encoding="utf-8")


@pytest.mark.parametrize("damage", [_comments, _torn, _latin, _link, _folder, _pipe, _foreign])
@pytest.mark.parametrize("name", [".claude/settings.json", ".mcp.json"])
def test_a_file_that_cannot_be_edited_is_one_error(place: Path, run: Run, name: str, damage: Any) -> None:
    path = place / name
    path.parent.mkdir(exist_ok=True)
    damage(path)
    before = sorted(str(one) for one in place.rglob("*"))
    content = None if damage is _pipe or damage is _folder else path.read_bytes()
    code, _, err = run("claude-code", "--yes", "--no-skills")
    assert code == 1
    message = err.strip().splitlines()[-1]
    assert message.startswith("mcp-evo: ")
    assert str(path) in err
    assert "Traceback" not in err
    assert sorted(str(one) for one in place.rglob("*")) == before
    if content is not None:
        assert path.read_bytes() == content


def test_a_folder_that_is_a_link_is_refused(place: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (place / ".claude").symlink_to(tmp_path / "shared")
    code, _, err = run("claude-code", "--yes", "--no-skills")
    assert (code, "is a link" in err) == (1, True)
    assert list((tmp_path / "shared").iterdir()) == []


@pytest.mark.parametrize("failing", range(1, 6))
def test_a_disk_that_fills_up_leaves_everything_as_it_was(
    place: Path, run: Run, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / ".mcp.json").write_text(SERVERS, encoding="utf-8")
    before = tree(place)
    real, count = files.write_bytes_atomic, 0

    def write(path: Path, data: bytes, *, mode: int = 0o644) -> None:
        nonlocal count
        count += 1
        if count == failing:
            raise OSError(28, "No space left on device", str(path))
        real(path, data, mode=mode)

    monkeypatch.setattr(files, "write_bytes_atomic", write)
    code, _, err = run("claude-code", "--yes", "--no-skills")
    if code == 0:
        assert count < failing  # fewer files than that
        return
    assert "No space left" in err
    assert tree(place) == before


def test_skills_that_cannot_be_written_take_everything_back(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise command.InstallError("no room for skills")

    monkeypatch.setattr(command, "install", refuse)
    code, _, err = run("claude-code", "--yes")
    assert (code, "no room for skills" in err) == (1, True)
    assert tree(place) == {}


def test_skills_of_others_are_not_overwritten(place: Path, run: Run) -> None:
    mine = place / ".claude" / "skills" / "rllm-train" / "SKILL.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("my own", encoding="utf-8")
    before = tree(place)
    code, _, err = run("claude-code", "--yes")
    assert (code, "not written by mcp-evo" in err, "--no-skills" in err) == (1, True, True)
    assert tree(place) == before


def test_edited_skills_stay_when_the_rest_goes(place: Path, run: Run) -> None:
    assert run("claude-code", "--yes")[0] == 0
    skill = place / ".claude" / "skills" / "rllm-train" / "SKILL.md"
    skill.write_text(skill.read_text(encoding="utf-8") + "\nmine\n", encoding="utf-8")
    code, out, _ = run("claude-code", "--remove", "--yes", "--json")
    assert (code, json.loads(out)["skills"]["kept"]) == (0, ["rllm-train/SKILL.md"])
    assert [name for name, data in tree(place).items() if data != b"<folder>"] == [".claude/skills/rllm-train/SKILL.md"]


def test_a_file_that_changes_in_the_meantime_is_not_overwritten(
    place: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / ".mcp.json").write_text(SERVERS, encoding="utf-8")
    monkeypatch.setattr(command.sys.stdin, "isatty", lambda: True, raising=False)

    def confirm(*_: object, **__: object) -> bool:
        (place / ".mcp.json").write_text('{"new": 1}', encoding="utf-8")
        return True

    monkeypatch.setattr(command.typer, "confirm", confirm)
    code, _, err = run("claude-code", "--no-skills")
    assert (code, "changed in the meantime" in err) == (1, True)
    assert tree(place) == {".mcp.json": b'{"new": 1}'}


def test_a_lost_backup_costs_no_configuration(place: Path, run: Run) -> None:
    (place / ".mcp.json").write_text(SERVERS, encoding="utf-8")
    assert run("claude-code", "--yes", "--no-skills")[0] == 0
    (place / ".mcp.json.before-mcp-evo").unlink()
    assert run("claude-code", "--remove", "--yes")[0] == 0
    assert (place / ".mcp.json").read_text(encoding="utf-8") == SERVERS


def test_secrets_of_others_are_not_shown(place: Path, run: Run) -> None:
    token = "gh" + "p_" + "a1B2" * 9
    text = json.dumps({"mcpServers": {"github": {"command": "x", "env": {"GITHUB_TOKEN": token}}}}, indent=2)
    (place / ".mcp.json").write_text(text, encoding="utf-8")
    code, out, err = run("claude-code", "--dry-run", "--no-skills")
    assert (code, token in out + err) == (0, False)
    code, out, err = run("claude-code", "--dry-run", "--no-skills", "--json")
    assert (code, token in out + err) == (0, False)


def test_the_hook_that_was_set_up_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line as it stands in the settings, run by a shell as the client does, writes into the workspace."""
    installed = Path(sys.executable).with_name("mcp-evo-hook")
    if not installed.is_file():
        pytest.skip(f"mcp-evo-hook is not installed beside {sys.executable}")
    project = tmp_path / "my project"
    (project / ".mcp-evo").mkdir(parents=True)
    connection = Connection("/x/mcp-evo", str(installed), project / ".mcp-evo")
    line = our_hook_events(with_hooks("{}", hook_command(connection)))["PostToolUse"]
    event = {"session_id": "s-1", "cwd": str(project), "hook_event_name": "PostToolUse", "tool_name": "Bash"}
    monkeypatch.delenv("MCP_EVO_HOME", raising=False)
    done = subprocess.run(line, shell=True, input=json.dumps(event).encode(), capture_output=True, cwd="/", check=True)
    assert (done.stdout, done.stderr) == (b"", b"")
    assert (project / ".mcp-evo" / "trajectories" / "raw" / "s-1" / "events.jsonl").is_file()


def test_the_server_that_was_set_up_starts_as_desktop_starts_it(
    place: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In `/`, with no PATH and nothing else of the user's environment; a first call works and is on record."""
    installed = Path(sys.executable).with_name("mcp-evo")
    if not installed.with_name("mcp-evo-hook").is_file():
        pytest.skip(f"mcp-evo is not installed beside {sys.executable}")
    monkeypatch.setattr(sys, "argv", [str(installed)])
    code, out, _ = run("claude-desktop", "--yes", "--json")
    document = json.loads(out)
    assert (code, document["server"]) == (0, str(installed))
    entry = json.loads(Path(document["changes"][0]["path"]).read_text(encoding="utf-8"))["mcpServers"]["evo"]
    server = subprocess.Popen(
        [entry["command"], *entry["args"]],
        cwd="/",
        env=entry["env"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "desktop", "version": "1"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "list_runs", "arguments": {}}},
    ]
    answers = []
    with server.stdin as wire:
        for message in messages:
            wire.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            wire.flush()
            if "id" in message:
                answers.append(json.loads(server.stdout.readline()))
    assert server.wait(30) == 0
    server.stdout.close()
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[1]["result"].get("isError") in (None, False)
    assert list((Path(entry["env"]["MCP_EVO_HOME"]) / "trajectories" / "raw").glob("*/events.jsonl"))
