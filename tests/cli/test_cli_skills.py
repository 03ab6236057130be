"""`mcp-evo skills import`, `compile --as-is`, `package`, `select`, `install` and `uninstall`, in this process."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_server.cli.main import run

BANKS = Path(__file__).parent.parent / "data" / "banks"


@pytest.fixture
def skills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `mcp-evo skills …` in a workspace and returns (exit code, stdout, stderr)."""

    def call(*arguments: str, workspace: str = "home") -> tuple[int, str, str]:
        code = run(["--workspace", str(tmp_path / workspace), "skills", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_compile_as_is(skills: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, text, _ = skills("compile", "--bank", str(BANKS / "orders"), "--as-is", "--out", str(out), "--json")
    document = json.loads(text)
    assert code == 0
    assert document["ok"] is True
    assert document["written"] == ["order", "edges", "moves"]
    for name in document["written"]:
        assert (out / name / "SKILL.md").read_bytes() == (BANKS / "orders" / "expected" / f"{name}.md").read_bytes()
    assert {"file", "line", "kind", "severity", "message"} <= document["oddities"][0].keys()
    code, text, _ = skills(
        "compile", "order", "--bank", str(BANKS / "orders"), "--as-is", "--out", str(out), "--profile", "short"
    )
    assert code == 0
    assert (out / "order/SKILL.md").read_bytes() == (BANKS / "orders/expected/order.short.md").read_bytes()


def test_compile_as_is_with_errors_writes_nothing_and_names_them_all(skills: Any, tmp_path: Path) -> None:
    arguments = ("compile", "--bank", str(BANKS / "oddities"), "--as-is", "--out", str(tmp_path / "out"))
    code, out, err = skills(*arguments)
    assert code == 1
    assert out == ""
    for place in ("g/nested/base.md:6", "g/latin/base.md:3", "g/unparsable/patches/bad.md:4", "g/nobase/base.md"):
        assert place in err
    assert not (tmp_path / "out").exists()
    code, out, _ = skills(*arguments, "--json")
    assert code == 1
    assert json.loads(out)["ok"] is False
    assert "g/nested/base.md:6" in json.loads(out)["error"]
    code, _, err = skills("compile", "fine", *arguments[1:])
    assert code == 0
    assert (tmp_path / "out" / "fine" / "SKILL.md").exists()
    code, _, err = skills("compile", "--bank", str(BANKS / "orders"), "--as-is")
    assert code == 1
    assert "--out" in err


def test_import_reports_migrates_and_refuses_a_target_in_use(skills: Any, tmp_path: Path) -> None:
    code, out, _ = skills("import", str(BANKS / "oddities"))
    assert code == 0, "the report is the work"
    assert "g/leaky/patches/wipes.md:4: shadowed" in out
    target = tmp_path / "new"
    code, out, _ = skills("import", str(BANKS / "orders"), "--migrate", "--out", str(target), "--dry-run", "--json")
    assert code == 0
    assert json.loads(out)["out"] is None
    assert not target.exists()
    code, out, _ = skills("import", str(BANKS / "orders"), "--migrate", "--out", str(target), "--json")
    assert code == 0
    assert json.loads(out)["skills"] == {"order": "patches", "edges": "patches", "moves": "folded"}
    assert skills("compile", "--bank", str(target), "--out", str(tmp_path / "out"))[0] == 0
    assert (tmp_path / "out/edges/SKILL.md").read_bytes() == (BANKS / "orders/expected/edges.md").read_bytes()
    code, _, err = skills("import", str(BANKS / "orders"), "--migrate", "--out", str(target))
    assert code == 1
    assert "not empty" in err
    code, _, err = skills("import", str(BANKS / "oddities"), "--migrate", "--out", str(tmp_path / "broken"))
    assert code == 1
    assert not (tmp_path / "broken").exists()
    assert skills("import", str(BANKS / "orders"), "--as-is", "--migrate")[0] == 1
    assert skills("import", str(tmp_path / "nowhere"))[0] == 1
    code, out, _ = skills("import", str(BANKS / "orders"), "--as-is", "--out", str(tmp_path / "texts"), "--json")
    assert json.loads(out)["written"] == ["order", "edges", "moves"]


def test_import_of_a_single_skill_into_the_workspace(skills: Any, tmp_path: Path) -> None:
    source = tmp_path / "deploy" / "SKILL.md"
    source.parent.mkdir()
    source.write_text("---\nname: deploy\ndescription: Deploys.\n---\n\n## When\nnow\n\n## How\nso\n", encoding="utf-8")
    code, out, _ = skills("import", str(source), "--migrate", "--json")
    document = json.loads(out)
    assert code == 0
    bank = Path(document["out"])
    assert bank == tmp_path / "home" / "imported" / "deploy"
    assert "<!-- section:when -->" in (bank / "imported/deploy/base.md").read_text(encoding="utf-8")
    assert skills("compile", "--bank", str(bank), "--out", str(tmp_path / "out"))[0] == 0
    assert (tmp_path / "out/deploy/SKILL.md").read_bytes() == source.read_bytes()


def test_packages_from_build_to_another_workspace(skills: Any, tmp_path: Path) -> None:
    assert skills("select", workspace="none")[0] == 1
    code, out, _ = skills("package", "build", "stable", "base", "--dry-run", "--json")
    assert len(json.loads(out)["contents"]) > 30
    assert json.loads(skills("package", "list", "--json")[1])["total"] == 0
    code, out, _ = skills("package", "build", "stable", "base", "--json")
    built = json.loads(out)
    assert code == 0
    assert (built["label"], built["new"], built["redacted"]) == ("stable:base@1", True, 0)
    assert json.loads(skills("package", "build", "stable", "base", "--json")[1])["new"] is False
    code, _, err = skills("package", "promote", "stable:base", "--domain", "math")
    assert code == 1
    assert "--trial ID, or --review" in err
    for label in ("stable:base", "experimental:math:base"):
        step = ("package", "promote", label, "--domain", "math", "--review", "tried on ten tasks", "--by", "me")
        before = skills("package", "list", "--json")[1]
        code, would, _ = skills(*step, "--dry-run", "--json")
        assert code == 0
        assert skills("package", "list", "--json")[1] == before
        code, out, _ = skills(*step, "--json")
        assert code == 0
        assert json.loads(would)["id"] == json.loads(out)["id"]
        assert len(json.loads(would)["contents"]) == json.loads(out)["files"]
    assert skills(*step, "--name", "../x", "--dry-run")[0] == 1
    promoted = json.loads(out)
    assert promoted["label"] == "vertical:math:base@1"
    assert json.loads(skills("select", "--domain", "math", "--json")[1])["package"]["label"] == promoted["label"]
    assert json.loads(skills("select", "--domain", "law", "--json")[1])["package"]["label"] == "stable:base@1"
    listed = json.loads(skills("package", "list", "--json")[1])
    assert listed["total"] == 3
    shown = json.loads(skills("package", "inspect", promoted["path"], "--json")[1])
    assert shown["id"] == "vertical:math:base"
    assert all(one["sha256"] and one["path"] for one in shown["contents"])
    assert skills("package", "verify", "vertical:math:base")[0] == 0
    # elsewhere
    code, out, _ = skills("package", "import", promoted["path"], "--dry-run", "--json", workspace="other")
    assert (code, json.loads(out)["id"]) == (0, "vertical:math:base")
    assert not (tmp_path / "other").exists()
    code, out, _ = skills("package", "import", promoted["path"], "--json", workspace="other")
    assert json.loads(out)["sha256"] == promoted["sha256"]
    base = tmp_path / "other" / "skills" / "rllm" / "rllm-run" / "base.md"
    base.write_text(base.read_text(encoding="utf-8").replace("exactly one run", "just one run"), encoding="utf-8")
    code, out, err = skills("package", "install", "vertical:math:base", "--json", workspace="other")
    document = json.loads(out)
    assert code == 1
    assert document["conflicts"].keys() == {"rllm-run"}
    assert document["installed"] is False
    assert "just one run" in err
    code, out, _ = skills(
        "package", "install", "vertical:math:base", "--replace", "rllm-run", "--json", workspace="other"
    )
    assert code == 0
    assert json.loads(out)["replaced"] == ["rllm-run"]
    assert "exactly one run" in base.read_text(encoding="utf-8")
    path = Path(promoted["path"])
    path.write_bytes(path.read_bytes()[:-9])
    code, _, err = skills("package", "install", "vertical:math:base")
    assert code == 1
    assert "it was changed" in err


def test_install_adopt_and_uninstall(skills: Any, tmp_path: Path) -> None:
    to = ("--to", str(tmp_path / "project" / "skills"))
    (tmp_path / "project").mkdir()
    assert skills("install", "rllm-run", *to, "--dry-run")[0] == 0
    assert list((tmp_path / "project").iterdir()) == []
    assert json.loads(skills("install", "rllm-run", *to, "--json")[1])["written"] == ["rllm-run"]
    mine = tmp_path / "project/skills/rllm-run/SKILL.md"
    text = mine.read_text(encoding="utf-8")
    mine.write_text(text + "my own line\n", encoding="utf-8")
    code, out, _ = skills("install", "rllm-run", *to, "--json")
    (objection,) = json.loads(out)["objections"]
    assert code == 1
    assert "+my own line" in objection["difference"]
    assert "my own line" in objection["patches"][0]["text"]
    assert skills("uninstall", *to)[0] == 1
    code, out, _ = skills("install", "rllm-run", *to, "--adopt", "--json")
    assert code == 0
    assert json.loads(out)["adopted"] == [f"rllm-run:{objection['patches'][0]['id']}"]
    assert mine.read_text(encoding="utf-8") == text, "the edit waits in the bank, staged"
    infos = json.loads(skills("status", "--json")[1])["skills"]
    (info,) = [one for one in infos if one["name"] == "rllm-run"]
    assert info["patches"][objection["patches"][0]["id"]] == "staged"
    assert skills("uninstall", *to)[0] == 0
    assert list((tmp_path / "project").iterdir()) == []
    code, _, err = skills("uninstall", *to)
    assert code == 1
    assert "installed nothing" in err


def test_a_dry_run_says_what_would_be_and_a_disk_that_refuses_is_one_line(skills: Any, tmp_path: Path) -> None:
    bank = tmp_path / "home" / "skills"
    assert skills("compile", "--all")[0] == 0
    base = bank / "rllm/rllm-run/base.md"
    base.write_text(base.read_text(encoding="utf-8") + "\nOne more line.\n", encoding="utf-8")
    would = json.loads(skills("compile", "--all", "--dry-run", "--json")[1])
    assert (would["written"], would["would_write"]) == ([], ["rllm-run"])
    assert "rllm-run" not in would["unchanged"]
    assert len(would["unchanged"]) > 10
    would = json.loads(skills("compile", "rllm-run", "--out", str(tmp_path / "out"), "--dry-run", "--json")[1])
    assert would["would_write"] == ["rllm-run"]
    assert not (tmp_path / "out").exists()
    # pinning: refused where the real one would be, and nothing of it sounds done
    assert skills("pin", "rllm-run", "0", "--dry-run")[0] == 1
    assert "would be" in skills("pin", "rllm-run", "--dry-run")[1]
    assert skills("pin", "rllm-run")[0] == 0
    assert skills("pin", "rllm-run", "--dry-run")[0] == 1
    assert "would be free" in skills("pin", "rllm-run", "--off", "--dry-run")[1]
    assert skills("pin", "rllm-run", "--off")[0] == 0
    # the disk
    (tmp_path / "file").write_text("x", encoding="utf-8")
    code, out, err = skills("compile", "rllm-run", "--out", str(tmp_path / "file" / "x"), "--json")
    assert code == 1
    assert json.loads(out)["kind"] == "CommandError"
    assert "Not a directory" in err
    assert skills("compile", "--bank", str(tmp_path / "none"), "--json")[0] == 1
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("asked", [("--group", "g"), ("--all",), ("a-a",), ()])
def test_a_mistake_in_the_index_hides_no_mistake_of_a_skill(
    asked: tuple[str, ...], skills: Any, tmp_path: Path
) -> None:
    bank = tmp_path / "bank"
    (bank / "g" / "a-a").mkdir(parents=True)
    (bank / "bank.yaml").write_text(
        "version: '1'\ngroups:\n  g:\n    skills:\n      a-a: {output: x\n", encoding="utf-8"
    )
    (bank / "g/a-a/base.md").write_text("---\nname: b-b\ndescription: D.\n---\n", encoding="utf-8")
    (bank / "g/a-a/manifest.yaml").write_text("active: [p]\n", encoding="utf-8")
    code, out, _ = skills("compile", *asked, "--bank", str(bank), "--json")
    assert code == 1
    problems = json.loads(out)["problems"]
    assert [(one["file"], one["line"]) for one in problems] == [
        ("bank.yaml", 5),
        ("g/a-a/base.md", 2),
        ("g/a-a/manifest.yaml", 1),
    ]
    assert all(one["message"] and one["fix"] for one in problems)
    assert not (bank / "compiled").exists()
