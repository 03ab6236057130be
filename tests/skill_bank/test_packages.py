"""Packages of skills: reproducible, checked when read, promoted for a reason, chosen by rule, installed whole."""

import dataclasses
import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from skill_bank_builder import SkillFiles, patch_text, tree, write_bank
from test_bank_crash import dies_at

from skill_bank.bank import SkillBank
from skill_bank.packages import archive
from skill_bank.packages.archive import MANIFEST, Limits, pack, unchanged, unpack
from skill_bank.packages.installing import install_package, plan_install
from skill_bank.packages.lifecycle import build, draft_of_bank, promote, verify
from skill_bank.packages.selection import select_package
from skill_bank.packages.store import PackageStore
from skill_bank.packages.types import Draft, Evidence, Kind, PackageError, PackageManifest, RegistryEntry
from skill_bank.types import BankError

REVIEW = Evidence(kind="review", note="Read all of it and tried it once.", by="somebody")


def make_bank(root: Path, body: str = "1", skills: tuple[str, ...] = ("one-skill", "two-skill")) -> SkillBank:
    patches = {"001-a": patch_text("001-a", "main", "added", scope="all")}
    files = {name: SkillFiles({"main": f"{name} {body}"}, patches, ["001-a"], schema=None) for name in skills}
    bank = SkillBank(write_bank(root, files))
    bank.compile()
    return bank


@pytest.fixture
def bank(tmp_path: Path) -> SkillBank:
    return make_bank(tmp_path / "bank")


@pytest.fixture
def store(tmp_path: Path) -> PackageStore:
    return PackageStore(tmp_path / "packages")


def record(files: dict[str, bytes], name: str = "x") -> Draft:
    return Draft(PackageManifest(kind=Kind.TASK, name=name), files)


# Archives

PATHS = st.from_regex(r"[a-z]{1,3}(/[a-zA-Z0-9._-]{1,4}){0,2}", fullmatch=True).filter(
    lambda path: not any(part in (".", "..") for part in path.split("/"))
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(files=st.dictionaries(PATHS, st.binary(max_size=200), max_size=6), order=st.randoms(use_true_random=False))
def test_the_same_content_gives_the_same_bytes_and_comes_back(files: dict[str, bytes], order: Any) -> None:
    shuffled = list(files.items())
    order.shuffle(shuffled)
    try:
        data, manifest = pack(record(files), unchanged)
    except PackageError:  # a file and a folder of one name, or two names that differ in case only
        folded = [path.casefold() for path in files]
        assert len(set(folded)) < len(folded) or any(b.startswith(a + "/") for a in files for b in files)
        return
    again, _ = pack(record(dict(shuffled)), unchanged)
    assert data == again
    found = unpack(data)
    assert found.files == files
    assert [one.path for one in found.manifest.contents] == sorted(files)
    assert found.manifest == manifest


def test_an_archive_holds_nothing_of_the_machine_that_made_it() -> None:
    data, _ = pack(record({"b/two.txt": b"2", "a.txt": b"1"}), unchanged)
    assert data[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"  # no flags, no time, no system
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as stream:
        entries = stream.getmembers()
    assert [one.name for one in entries] == [MANIFEST, "a.txt", "b/two.txt"]
    for one in entries:
        assert (one.mtime, one.uid, one.gid, one.uname, one.gname, one.mode) == (0, 0, 0, "", "", 0o644)
        assert one.isreg()


def test_two_processes_with_other_hash_seeds_build_the_same_bytes(bank: SkillBank, tmp_path: Path) -> None:
    code = (
        "import sys, hashlib; from skill_bank.bank import SkillBank;"
        "from skill_bank.packages.lifecycle import build, draft_of_bank; from skill_bank.packages.store import *;"
        "from skill_bank.packages.archive import unchanged; from pathlib import Path;"
        "print(build(PackageStore(Path(sys.argv[2])), draft_of_bank(SkillBank(sys.argv[1]), 'p'), unchanged)[0].sha256)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code, str(bank.root), str(tmp_path / f"store-{seed}")],
            check=True, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed, "TZ": f"UTC{seed}"},
        ).stdout
        for seed in ("1", "7")
    }  # fmt: skip
    assert len(found) == 1


def hostile(*entries: tuple[tarfile.TarInfo, bytes], manifest: dict[str, Any] | None = None) -> bytes:
    """An archive as an attacker would write it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as stream:
        document = manifest if manifest is not None else {"kind": "task", "name": "x", "contents": []}
        data = json.dumps(document).encode()
        info = tarfile.TarInfo(MANIFEST)
        info.size = len(data)
        stream.addfile(info, io.BytesIO(data))
        for entry, content in entries:
            entry.size = len(content)
            stream.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../up", "a/../../up", "a//b", "./a", "a/.", "C:/x", "a\\b", "a\nb", "a/ b", "x" * 300, "a\u202eb"],
)
def test_paths_that_could_leave_the_folder_are_refused(name: str) -> None:
    with pytest.raises(PackageError, match="is refused"):
        unpack(hostile((entry(name), b"x")))
    with pytest.raises(PackageError, match="is refused"):
        pack(record({name: b"x"}), unchanged)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_what_is_no_regular_file_is_refused(kind: bytes) -> None:
    with pytest.raises(PackageError, match="no regular file"):
        unpack(hostile((entry("a", kind, "/etc/passwd"), b"")))


def test_damage_lies_and_bombs_are_refused() -> None:
    good, _ = pack(record({"a.txt": b"a" * 1000}), unchanged)
    for data in (b"", b"no gzip", good[:-20], good[: len(good) // 2], gzip.compress(b"no tar")):
        with pytest.raises(PackageError):
            unpack(data)
    with pytest.raises(PackageError, match="not listed"):
        unpack(hostile((entry("a"), b"x")))
    listed = {"kind": "task", "name": "x", "contents": [{"path": "a", "size": 1, "sha256": "0" * 64}]}
    with pytest.raises(PackageError, match="checksum"):
        unpack(hostile((entry("a"), b"x"), manifest=listed))
    with pytest.raises(PackageError, match="missing"):
        unpack(hostile(manifest=listed))
    with pytest.raises(PackageError, match="occurs twice"):
        unpack(hostile((entry("a"), b"x"), (entry("a"), b"y")))
    with pytest.raises(PackageError, match="one file where case"):
        unpack(hostile((entry("a"), b"x"), (entry("A"), b"y")))
    with pytest.raises(PackageError, match="folder of"):
        unpack(hostile((entry("a"), b"x"), (entry("a/b"), b"y")))
    with pytest.raises(PackageError, match="cannot be used"):
        unpack(hostile(manifest={"kind": "nonsense", "name": "x"}))
    bomb = hostile((entry("a"), b"\0" * 300_000))
    small = Limits(total_bytes=100_000, file_bytes=100_000, entries=3)
    assert len(bomb) < 2000
    with pytest.raises(PackageError, match=r"larger than|unpacks to more"):
        unpack(bomb, small)
    with pytest.raises(PackageError, match="entries"):
        unpack(hostile(*((entry(f"f{n}"), b"") for n in range(5))), small)
    with pytest.raises(PackageError, match="bytes"):
        unpack(bomb, dataclasses.replace(small, packed_bytes=10))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_one_flipped_bit_never_gives_other_content(at: int, bit: int) -> None:
    good, _ = pack(record({"a.txt": b"text " * 30, "b/c.json": b"{}"}), unchanged)
    damaged = bytearray(good)
    damaged[at % len(good)] ^= 1 << bit
    try:
        found = unpack(bytes(damaged))
    except PackageError:
        return
    assert found.files == unpack(good).files  # a bit of the gzip header that means nothing


# The index


def test_building_lists_and_building_again_changes_nothing(bank: SkillBank, store: PackageStore) -> None:
    first, new = build(store, draft_of_bank(bank, "base", description="d"), unchanged)
    assert new
    assert first.label == "stable:base@1"
    assert first.skills == ("one-skill", "two-skill")
    before = tree(store.root)
    assert build(store, draft_of_bank(bank, "base", description="d"), unchanged) == (first, False)
    assert tree(store.root) == before
    (bank.root / "rllm/one-skill/base.md").write_text(
        (bank.root / "rllm/one-skill/base.md").read_text().replace("one-skill 1", "one-skill 2"), encoding="utf-8"
    )
    second, new = build(store, draft_of_bank(bank, "base", description="d"), unchanged)
    assert new
    assert second.label == "stable:base@2"
    assert [one.current for one in store.entries()] == [False, True]
    assert store.find("stable:base").version == 2
    package = store.open("stable:base@1")
    verify(package)
    assert package.files["compiled/one-skill/SKILL.md"].endswith(b"one-skill 1\n\nadded\n")
    with pytest.raises(PackageError, match="there is no package 'stable:other'"):
        store.find("stable:other")


def test_a_changed_archive_is_noticed(bank: SkillBank, store: PackageStore) -> None:
    found, _ = build(store, draft_of_bank(bank, "base"), unchanged)
    path = store.root / found.archive
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(PackageError, match="it was changed"):
        store.open("stable:base")
    path.unlink()
    with pytest.raises(PackageError, match="cannot be read"):
        store.open("stable:base")
    (store.root / "registry.json").write_text("{", encoding="utf-8")
    with pytest.raises(PackageError, match="cannot be read"):
        store.entries()


def test_secrets_are_taken_out_of_sources_and_text_and_counted(tmp_path: Path, store: PackageStore) -> None:
    bank = make_bank(tmp_path / "secret", "token hunter2")

    def redactor(path: str, data: bytes) -> bytes:
        return data.replace(b"hunter2", b"[redacted:test]")

    build(store, draft_of_bank(bank, "base"), redactor)
    package = store.open("stable:base")
    assert not any(b"hunter2" in data for data in package.files.values())
    counts = {one.path: one.redacted for one in package.manifest.contents if one.redacted}
    assert counts == {
        **{f"bank/rllm/{name}/base.md": 1 for name in ("one-skill", "two-skill")},
        **{f"compiled/{name}/SKILL.md": 1 for name in ("one-skill", "two-skill")},
    }
    verify(package)


def test_links_and_dependencies_outside_are_refused(bank: SkillBank, store: PackageStore, tmp_path: Path) -> None:
    (bank.root / "rllm/one-skill/link.md").symlink_to("/etc/passwd")
    with pytest.raises(PackageError, match="is a link"):
        draft_of_bank(bank, "base")
    files = {
        "one-skill": SkillFiles({"main": "1"}, {"001-a": patch_text("001-a", "main", "a")}, ["001-a"], schema=None),
        "two-skill": SkillFiles(
            {"main": "2"},
            {"001-b": patch_text("001-b", "main", "b", depends_on='["one-skill:001-a"]')},
            ["001-b"],
            schema=None,
        ),
    }
    other = SkillBank(write_bank(tmp_path / "other", files))
    with pytest.raises(PackageError, match="pack one-skill too"):
        draft_of_bank(other, "base", target="two-skill")
    verify(unpack(pack(draft_of_bank(other, "base"), unchanged)[0]))


# Life cycle


def test_promotion_needs_a_reason_and_keeps_all_of_them(bank: SkillBank, store: PackageStore) -> None:
    build(store, draft_of_bank(bank, "base"), unchanged)
    with pytest.raises(PackageError, match="which one it is promoted for"):
        promote(store, "stable:base", REVIEW, unchanged)
    trial = Evidence(kind="trial", reference="trial-1", verdict="better", effect=0.2, ci95=(0.1, 0.3), pairs=12)
    first, _ = promote(store, "stable:base", REVIEW, unchanged, domain="math", agents=["claude-code"])
    assert first.label == "experimental:math:base@1"
    with pytest.raises(PackageError, match="for the domain math"):
        promote(store, first.id, trial, unchanged, domain="law")
    last, _ = promote(store, first.id, trial, unchanged, name="careful")
    assert last.label == "vertical:math:careful@1"
    assert last.base == "experimental:math:base@1"
    assert last.agents == ("claude-code",)
    assert last.evidence == (REVIEW, trial)
    assert store.open(last.id).files == store.open("stable:base").files
    with pytest.raises(PackageError, match="as far as it goes"):
        promote(store, last.id, trial, unchanged)
    store.add(record({"a": b"1"}), unchanged)
    with pytest.raises(PackageError, match="holds a record"):
        promote(store, "task:x", trial, unchanged)


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "review", "note": "ok", "by": "me"},
        {"kind": "review", "note": "long enough, by nobody"},
        {"kind": "trial", "reference": "t", "verdict": "inconclusive"},
        {"kind": "trial", "verdict": "better"},
    ],
)
def test_what_is_no_reason(fields: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"no reason|needs the reviewer"):
        Evidence.model_validate(fields)


def test_promotion_with_the_present_state_of_the_bank(bank: SkillBank, store: PackageStore, tmp_path: Path) -> None:
    build(store, draft_of_bank(bank, "base", target="one-skill"), unchanged)
    path = bank.root / "rllm/one-skill/base.md"
    path.write_text(path.read_text(encoding="utf-8").replace("one-skill 1", "one-skill 9"), encoding="utf-8")
    found, _ = promote(store, "stable:base", REVIEW, unchanged, domain="math", bank=bank)
    package = store.open(found.id)
    assert [one.name for one in package.manifest.skills] == ["one-skill"]
    assert b"one-skill 9" in package.files["compiled/one-skill/SKILL.md"]
    assert not any("two-skill" in path for path in package.files)
    verify(package)
    with pytest.raises(PackageError, match="has no skill one-skill"):
        promote(store, "stable:base", REVIEW, unchanged, domain="law", bank=make_bank(tmp_path / "b", skills=("z-z",)))


# Selection


def made(kind: Kind, name: str, domain: str | None = None, agents: tuple[str, ...] = (), **more: Any) -> RegistryEntry:
    fields = {"version": 1, "archive": "a", "sha256": "0", "size": 1, "created_at": 1.0, **more}
    id_ = ":".join(one for one in (str(kind), domain, name) if one)
    return RegistryEntry(id=id_, kind=kind, name=name, domain=domain, agents=agents, **fields)


ENTRIES = [
    made(Kind.STABLE, "old"),
    made(Kind.STABLE, "base", created_at=2.0),
    made(Kind.STABLE, "codex", agents=("codex",)),
    made(Kind.EXPERIMENTAL, "try", "math"),
    made(Kind.EXPERIMENTAL, "try", "law"),
    made(Kind.VERTICAL, "any", "math"),
    made(Kind.VERTICAL, "mine", "math", ("claude-code",)),
    made(Kind.VERTICAL, "gone", "math", ("claude-code",), current=False, created_at=9.0),
    made(Kind.TASK, "record"),
]


@pytest.mark.parametrize(
    ("domain", "agent", "experimental", "chosen"),
    [
        ("math", "claude-code", False, "vertical:math:mine@1"),
        ("math", "codex", False, "vertical:math:any@1"),
        ("math", None, True, "vertical:math:any@1"),
        ("law", "codex", False, "stable:codex@1"),
        ("law", "codex", True, "experimental:law:try@1"),
        ("law", None, False, "stable:base@1"),
        (None, None, False, "stable:base@1"),
        (None, "other", True, "stable:base@1"),
    ],
)
def test_the_rule_of_selection(domain: str | None, agent: str | None, experimental: bool, chosen: str) -> None:
    for entries in (ENTRIES, ENTRIES[::-1]):
        found = select_package(entries, domain, agent, experimental=experimental)
        assert [one.entry.label for one in found if one.chosen] == [chosen]
        assert len(found) == len(ENTRIES)
        assert all(one.why for one in found)


def test_nothing_is_chosen_where_nothing_fits() -> None:
    assert not any(one.chosen for one in select_package([made(Kind.VERTICAL, "x", "law"), ENTRIES[-1]], "math", None))


# Installing


def test_a_package_installs_into_another_bank(bank: SkillBank, store: PackageStore, tmp_path: Path) -> None:
    build(store, draft_of_bank(bank, "base"), unchanged)
    package = store.open("stable:base")
    other = make_bank(tmp_path / "other", skills=("own-skill",))
    text = (other.root / "bank.yaml").read_text(encoding="utf-8")
    (other.root / "bank.yaml").write_text(text.replace("own-skill: {output: x}", "own-skill:\n        output: x"))
    plan = plan_install(other, package)
    before = tree(other.root)
    assert plan.added == ("one-skill", "two-skill")
    assert tree(other.root) == before
    install_package(other, package)
    assert other.skills() == ("own-skill", "one-skill", "two-skill")
    assert (other.root / "bank.yaml").read_text(encoding="utf-8").startswith(text.split("own-skill")[0])
    for name in ("one-skill", "two-skill"):
        assert tree(other.compiled_folder(name)) == tree(bank.compiled_folder(name))
        assert other.history(name)[-1].reason == "install stable:base"
    again = install_package(other, package)
    assert (again.added, again.unchanged) == ((), ("one-skill", "two-skill"))


def test_a_skill_that_differs_is_shown_and_kept(bank: SkillBank, store: PackageStore, tmp_path: Path) -> None:
    build(store, draft_of_bank(bank, "base"), unchanged)
    package = store.open("stable:base")
    other = make_bank(tmp_path / "other", "mine", skills=("one-skill",))
    own = other.render_patch(
        "one-skill", id="002-own", target_section="main", body="own", description="d", source="s", created="c"
    )
    other.add_patch(own)
    before = tree(other.root)
    plan = plan_install(other, package)
    assert plan.conflicts.keys() == {"one-skill"}
    assert "-one-skill mine" in plan.conflicts["one-skill"]
    assert "+one-skill 1" in plan.conflicts["one-skill"]
    with pytest.raises(PackageError, match="another version"):
        install_package(other, package)
    assert tree(other.root) == before
    with pytest.raises(PackageError, match="no skill nonsense"):
        plan_install(other, package, ["nonsense"])
    done = install_package(other, package, ["one-skill"])
    assert (done.added, done.replaced) == (("two-skill",), ("one-skill",))
    assert tree(other.compiled_folder("one-skill")) == tree(bank.compiled_folder("one-skill"))
    assert "002-own" in other.patches("one-skill"), "what the package does not have stays"


def test_a_pinned_skill_is_not_replaced_and_what_can_run_is_named(
    bank: SkillBank, store: PackageStore, tmp_path: Path
) -> None:
    (bank.root / "rllm/one-skill/run.sh").write_text("true\n", encoding="utf-8")
    path = bank.root / "rllm/two-skill/base.md"
    path.write_text(path.read_text(encoding="utf-8").replace("two-skill 1", "now: !`date`"), encoding="utf-8")
    build(store, draft_of_bank(bank, "base"), unchanged)
    package = store.open("stable:base")
    other = make_bank(tmp_path / "other", "mine", skills=("one-skill",))
    assert plan_install(other, package, ["all"]).executable == (
        "rllm/one-skill/run.sh: a file that is no text of a skill",
        "rllm/two-skill/base.md:7: a command that runs when the skill loads",
    )
    other.pin("one-skill", 1)
    before = tree(other.root)
    with pytest.raises(BankError, match="pinned"):
        install_package(other, package, ["one-skill"])
    assert tree(other.root) == before


def test_what_would_not_be_the_same_text_is_refused(bank: SkillBank, store: PackageStore, tmp_path: Path) -> None:
    verbatim = make_bank(tmp_path / "verbatim", "1\n\n")
    text = (verbatim.root / "bank.yaml").read_text(encoding="utf-8")
    (verbatim.root / "bank.yaml").write_text(text + "settings: {layout: verbatim}\n", encoding="utf-8")
    build(store, draft_of_bank(verbatim, "base"), unchanged)
    other = make_bank(tmp_path / "other", skills=("own-skill",))
    with pytest.raises(PackageError, match="layout verbatim"):
        install_package(other, store.open("stable:base"))
    broken = make_bank(tmp_path / "broken", skills=("own-skill",))
    (broken.root / "rllm/own-skill/base.md").write_text("nothing", encoding="utf-8")
    build(store, draft_of_bank(bank, "plain"), unchanged)
    install_package(broken, store.open("stable:plain"))  # a broken skill of its own is none of the package's business
    assert "one-skill" in broken.skills()
    flow = make_bank(tmp_path / "flow", skills=("own-skill",))
    (flow.root / "bank.yaml").write_text("groups: {rllm: {skills: {own-skill: {output: x}}}}\n", encoding="utf-8")
    with pytest.raises((PackageError, BankError), match=r"bank.yaml cannot be extended"):
        install_package(flow, store.open("stable:plain"))
    store.add(record({"a": b"1"}), unchanged)
    with pytest.raises(PackageError, match="record of a task"):
        plan_install(other, store.open("task:x"))


# A writer that dies, and a full disk


def test_an_install_that_dies_at_any_step_leaves_the_old_or_is_finished(
    bank: SkillBank, store: PackageStore, tmp_path: Path
) -> None:
    build(store, draft_of_bank(bank, "base"), unchanged)
    package = store.open("stable:base")
    fresh = make_bank(tmp_path / "fresh", "mine", skills=("one-skill", "own-skill"))
    old, new = fresh.index().skills.keys(), {"one-skill", "own-skill", "two-skill"}
    step = 0
    seen: list[bool] = []
    while seen[-3:] != [True] * 3:  # from there on it is the compiler's steps, which test_bank_crash looks at
        step += 1
        copy = tmp_path / f"copy-{step}"
        subprocess.run(["cp", "-a", str(fresh.root), str(copy)], check=True)
        died = dies_at(step, lambda root=copy: install_package(SkillBank(root), package, ["one-skill"]))
        again = SkillBank(copy)
        again.compile()  # the next writer finishes or takes back
        installed = again.index().skills.keys() == new
        assert installed or again.index().skills.keys() == old, f"step {step}"
        text = again.load_compiled("one-skill")
        assert ("one-skill 1" in text) == installed, f"step {step}: a mixture"
        assert not [one.name for one in copy.iterdir() if "package-install" in one.name]
        assert not (copy / "package-install.json").exists()
        assert died
        seen.append(installed)
        subprocess.run(["rm", "-rf", str(copy)], check=True)
    assert seen.index(True) > 5, "the new files were on the disk before anything counted"
    assert seen == sorted(seen)


def test_a_build_that_dies_at_any_step_leaves_the_old_or_the_new_index(bank: SkillBank, tmp_path: Path) -> None:
    step = 0
    while True:
        step += 1
        store = PackageStore(tmp_path / f"store-{step}")
        store.add(record({"a": b"1"}, "first"), unchanged)
        died = dies_at(step, lambda root=store.root: PackageStore(root).add(record({"b": b"2"}, "next"), unchanged))
        labels = [one.label for one in store.entries()]
        assert labels in (["task:first@1"], ["task:first@1", "task:next@1"])
        for label in labels:
            store.open(label)
        entry_, _ = store.add(record({"b": b"2"}, "next"), unchanged)  # the next build does it
        assert store.open(entry_.label).files == {"b": b"2"}
        if not died:
            break
    assert step > 2


def test_a_full_disk_changes_nothing(
    bank: SkillBank, store: PackageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(store, draft_of_bank(bank, "base"), unchanged)
    package = store.open("stable:base")
    other = make_bank(tmp_path / "other", skills=("own-skill",))
    before, packages = tree(other.root), tree(store.root)
    real = os.fsync

    def full(descriptor: int) -> None:
        real(descriptor)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        install_package(other, package)
    with pytest.raises(OSError, match="No space"):
        store.add(record({"b": b"2"}, "next"), unchanged)
    monkeypatch.undo()
    other.compile()
    assert {path: data for path, data in tree(other.root).items() if not path.startswith("versions/")} == {
        path: data for path, data in before.items() if not path.startswith("versions/")
    }
    assert tree(store.root) == packages


def test_the_bound_of_a_stream_counts_every_byte() -> None:
    packed = gzip.compress(b"\0" * 5_000_000)
    with pytest.raises(PackageError):
        unpack(packed, Limits(total_bytes=1, entries=0))
    assert archive.MARK == b"[redacted:"
