"""Links and pipes where a file or folder is expected: never followed out of the workspace, never waited for."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from server_helpers import in_memory

from mcp_server.access.over_http import HttpError, token_of
from mcp_server.access.tokens import TOKENS_FILE, TokenError, Tokens
from mcp_server.approvals.question_state import KEY_FILE, QuestionState
from skill_bank.bank import SkillBank
from skill_bank.install import InstallError, install, plan_install

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

CANARY = "canary-behind-a-link"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Something beside the project that is nobody's business."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(CANARY)
    (folder / "run.json").write_text(f'{{"run_id": "{CANARY}", "state": "finished"}}')
    (folder / "SKILL.md").write_text(f"---\nname: x\ndescription: {CANARY}\n---\n{CANARY}\n")
    return folder


def tree(folder: Path) -> dict[str, str]:
    return {str(one.relative_to(folder)): one.read_text() for one in sorted(folder.rglob("*")) if one.is_file()}


@pytest.mark.parametrize("kind", ["file", "folder", "dangling", "loop", "pipe", "hard link"])
async def test_a_served_skill_holds_no_link(root: Path, outside: Path, kind: str, era: str) -> None:
    async with in_memory(root, era) as caller:
        await caller.ok("skill_status")
        skill = root / "skills" / "compiled" / "rllm-monitor"
        assert (skill / "SKILL.md").is_file()
        place = skill / "references" / "more.md"
        place.parent.mkdir(exist_ok=True)
        {
            "file": lambda: place.symlink_to(outside / "secret.txt"),
            "folder": lambda: place.symlink_to(outside),
            "dangling": lambda: place.symlink_to(outside / "none"),
            "loop": lambda: place.symlink_to(place),
            "pipe": lambda: os.mkfifo(place),
            "hard link": lambda: os.link(outside / "secret.txt", place),
        }[kind]()
        for uri in ("skill://rllm-monitor/references/more.md", "skill://rllm-monitor/references/more.md/secret.txt"):
            try:
                found = await caller.client.read_resource(uri)
            except MCPError as error:
                said = str(error.error)
            else:
                said = found.model_dump_json()
            # a second name of the same file cannot be told from a first one: whoever made it could have copied it
            assert CANARY not in said or kind == "hard link"
        listed = (await caller.client.list_resources()).model_dump_json()
        assert CANARY not in listed


async def test_a_linked_run_patch_or_session_shows_nothing_of_what_is_outside(root: Path, outside: Path) -> None:
    async with in_memory(root, "auto") as caller:
        await caller.ok("skill_status")
        for folder, name in (("runs", "linked-run"), ("patches", "linked-patch"), ("trajectories/raw", "linked")):
            (root / folder).mkdir(parents=True, exist_ok=True)
            (root / folder / name).symlink_to(outside)
        before = tree(outside)
        for tool, arguments in (
            ("list_runs", {}),
            ("stop_run", {"run_id": "linked-run"}),
            ("review_patch", {"patch_id": "linked-patch"}),
            ("try_patch", {"patch_id": "linked-patch"}),
            ("segment_trajectories", {}),
            ("search_trajectories", {"session": "linked"}),
        ):
            assert "secret.txt" not in (await caller.raw(tool, **arguments)).model_dump_json()
        found = await caller.raw("search_trajectories", text=CANARY)
        assert CANARY not in str(found.structured_content)
    assert tree(outside) == before


def test_secrets_are_not_read_through_links(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "http-token").symlink_to(outside / "secret.txt")
    with pytest.raises(HttpError, match="cannot be read"):
        token_of(tmp_path)
    (tmp_path / TOKENS_FILE).symlink_to(outside / "secret.txt")
    with pytest.raises(TokenError, match="cannot be read"):
        Tokens(tmp_path).read()
    (tmp_path / KEY_FILE).symlink_to(outside / "secret.txt")
    QuestionState(tmp_path, 60).seal(b"x")  # replaced, not followed
    assert not (tmp_path / KEY_FILE).is_symlink()
    assert tree(outside)["secret.txt"] == CANARY


def test_installing_follows_no_link(tmp_path: Path, outside: Path) -> None:
    skills = {"rllm-train": {"SKILL.md": b"ours\n"}}
    target = tmp_path / "client" / "skills"
    target.mkdir(parents=True)
    places: list[Callable[[], object]] = [
        lambda: (target / "rllm-train").symlink_to(outside),
        lambda: (
            (target / "rllm-train").mkdir(),
            (target / "rllm-train" / "SKILL.md").symlink_to(outside / "SKILL.md"),
        ),
    ]
    before = tree(outside)
    for make in places:
        make()
        with pytest.raises(InstallError, match="link"):
            install(plan_install(skills, target))
        assert tree(outside) == before
        one = target / "rllm-train"
        if one.is_symlink():
            one.unlink()
    linked = tmp_path / "linked"
    linked.symlink_to(outside)
    with pytest.raises(InstallError, match="link"):
        install(plan_install(skills, linked))
    assert tree(outside) == before


def test_a_pipe_in_the_way_holds_nobody_up(root: Path, outside: Path) -> None:
    """Each look is made in a thread that must end."""
    SkillBank.seed(root / "skills")
    tokens = root / TOKENS_FILE
    os.mkfifo(tokens, 0o600)
    os.mkfifo(root / "http-token", 0o600)
    looks: list[Callable[[], Any]] = [lambda: Tokens(root).caller("x"), lambda: token_of(root)]
    for look in looks:
        done: list[object] = []

        def run(look: Callable[[], Any] = look, done: list[object] = done) -> None:
            try:
                done.append(look())
            except HttpError as error:
                done.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(30)
        assert done, "it waits for the pipe"
    assert outside.is_dir()
