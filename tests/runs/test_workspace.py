"""Where the workspace is, how it is made, which ids are allowed."""

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainer.runs.errors import WorkspaceError
from trainer.runs.workspace import FOLDERS, WorkspaceConfig, check_id, create_workspace, find_workspace, open_workspace


def test_the_option_wins_then_the_variable_then_an_ancestor(tmp_path: Path) -> None:
    project = tmp_path / "project"
    deep = project / "a" / "b"
    deep.mkdir(parents=True)
    variables = {"MCP_EVO_HOME": str(tmp_path / "home")}
    assert find_workspace("x/y", environment=variables, directory=deep) == Path.cwd() / "x/y"
    assert find_workspace(None, environment=variables, directory=deep) == tmp_path / "home"
    assert find_workspace(None, environment={}, directory=deep) == deep / ".mcp-evo"
    (project / ".mcp-evo").mkdir()
    assert find_workspace(None, environment={}, directory=deep) == project / ".mcp-evo"
    (deep / ".mcp-evo").mkdir()
    assert find_workspace(None, environment={}, directory=deep) == deep / ".mcp-evo"


def test_the_root_folder_falls_back_to_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_workspace(None, environment={}, directory=Path("/")) == tmp_path / ".mcp-evo"


def test_a_new_workspace_is_private_and_invisible_to_git(tmp_path: Path) -> None:
    previous = os.umask(0o022)
    try:
        workspace = create_workspace(tmp_path / "a" / "w")
    finally:
        os.umask(previous)
    assert workspace.root.stat().st_mode & 0o777 == 0o700
    assert (workspace.root / ".gitignore").read_text() == "*\n"
    assert {path.name for path in workspace.root.iterdir()} >= set(FOLDERS)
    (workspace.root / ".gitignore").write_text("mine\n")
    (workspace.root / "config.yaml").write_text("max_concurrent_runs: 2\n")
    create_workspace(workspace.root)
    assert (workspace.root / ".gitignore").read_text() == "mine\n"
    assert (workspace.root / "config.yaml").read_text() == "max_concurrent_runs: 2\n"


def test_finding_creates_nothing(tmp_path: Path) -> None:
    root = find_workspace(None, environment={}, directory=tmp_path)
    assert not root.exists()
    with pytest.raises(WorkspaceError, match="no workspace at"):
        open_workspace(root)


def test_a_workspace_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match=r"cannot be written .*--workspace"):
        create_workspace(tmp_path / "file" / "w")
    with pytest.raises(WorkspaceError, match="cannot be written"):
        create_workspace(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(WorkspaceError, match="cannot be written"):
        create_workspace(tmp_path / "w")


@pytest.mark.parametrize(
    "text",
    ["", "..", ".", "../x", "a/b", "a\\b", "A", "-a", "_a", "a b", "a\n", "a\x00", "ä", "a" * 65, "a.b", "/etc", "~"],
)
def test_path_tricks_are_no_ids(text: str) -> None:
    with pytest.raises(WorkspaceError, match="is not a run id"):
        check_id(text)


@given(st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True))
def test_ids_are_taken(text: str) -> None:
    assert check_id(text) == text


@given(st.text(max_size=70))
def test_whatever_is_accepted_stays_one_plain_name(text: str) -> None:
    try:
        accepted = check_id(text)
    except WorkspaceError:
        return
    assert Path("/base", accepted).parent == Path("/base")
    assert len(accepted.encode()) <= 64


@pytest.mark.parametrize(
    ("content", "part"),
    [("max_concurrent_runs: 0", "max_concurrent_runs"), ("- 1", "must hold"), ("a: [", "cannot be read")],
)
def test_a_bad_settings_file_is_named(tmp_path: Path, content: str, part: str) -> None:
    workspace = create_workspace(tmp_path / "w")
    workspace.config_path.write_text(content)
    with pytest.raises(WorkspaceError, match=part):
        workspace.config()


def test_settings_have_defaults_and_keep_what_others_own(tmp_path: Path) -> None:
    workspace = create_workspace(tmp_path / "w")
    assert workspace.config().max_concurrent_runs == 1
    workspace.config_path.write_text("max_concurrent_runs: 3\nredaction: {emails: true}\n")
    assert workspace.config().max_concurrent_runs == 3


def test_the_written_settings_are_the_defaults_in_comments(tmp_path: Path) -> None:
    text = (create_workspace(tmp_path / "w").root / "config.yaml").read_text()
    assert yaml.safe_load(text) is None
    uncommented = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ") and ": " in line]
    assert WorkspaceConfig.model_validate(yaml.safe_load("\n".join(uncommented))) == WorkspaceConfig()


def test_several_may_create_one_workspace_at_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for number in range(20):
        root = tmp_path / f"w{number}" / ".mcp-evo"
        with ThreadPoolExecutor(8) as threads:
            made = list(threads.map(create_workspace, [root] * 8))
        assert {one.root for one in made} == {root}
        assert root.stat().st_mode & 0o777 == 0o700
