"""Every other block of the pages: Python is executed and used, YAML and JSON are read by what reads them in earnest.

A block that no entry of `CHECKS` knows fails, so that a new one brings its check along.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from doc_pages import PAGES, ROOT, Block, blocks

import skill_bank
from mcp_server.skills.examples import examples_of
from mcp_server.skills.markdown import SourceFile
from optimizer.analyze.claims import claims_from
from optimizer.redact import rules_of
from skill_bank.bank import SkillBank
from skill_bank.policy import check_condition, matches
from trainer.config import TrainingConfig
from trainer.envs.registry import load
from trainer.experience.config import open_pool, open_source, settings_of
from trainer.experience.records import ExperienceRecord, Status
from trainer.runs.workspace import create_workspace
from trainer.settings import resolve

Check = Callable[[Block, Path], None]

EXECUTED_ELSEWHERE = {"bash": "test_doc_commands", "console": "test_doc_commands"}

NOTHING_TO_EXECUTE = {"text": "output, a tree or a sketch", "mermaid": "test_doc_links reads diagrams"}
"""Language → why no check is wanted."""

SNIPPETS = [
    block
    for page in PAGES
    for block in blocks(page)
    if block.language not in {**EXECUTED_ELSEWHERE, **NOTHING_TO_EXECUTE}
]


def an_environment_class(block: Block, folder: Path) -> None:
    """It loads as the page says, its methods are the tools, and a good episode is rewarded."""
    (folder / "my_module.py").write_text(f"PRICES = {{'tea': '3'}}\n\n\n{block.text}", encoding="utf-8")
    spec = load("python:my_module:Shop", (folder,))
    assert spec.tools == ("finish", "price")  # in the order of the alphabet
    shop = spec.factory()
    shop.reset(answer="3")
    assert shop.price("tea") == "3"
    assert (shop.get_reward(), shop.finished) == (0.0, False)
    shop.finish("3")
    assert (shop.get_reward(), shop.finished) == (1.0, True)


def two_rewards(block: Block, folder: Path) -> None:
    """Both are functions of what the page says they get."""
    namespace: dict[str, Any] = {}
    exec(compile(block.text, block.name, "exec"), namespace)
    sold = SimpleNamespace(sold=True, total=7)
    assert namespace["my_reward"](SimpleNamespace(turns=3), sold) == 1.0
    assert namespace["my_reward"](SimpleNamespace(turns=4), sold) == 0.0
    assert namespace["trl_reward"](completions=[[]], environments=[sold], answer=[7], tasks=[1]) == [1.0]


def a_source_of_lessons(block: Block, folder: Path) -> None:
    """With a pool that holds a lesson that fits."""
    workspace = create_workspace(folder / ".mcp-evo")
    with open_pool(workspace, "default", create=True) as pool:
        for n in range(3):
            situation, advice = f"In house 123, what is x @ y? ({n})", f"use calculate with x + y, way {n}"
            pool.add(ExperienceRecord(situation, advice, status=Status.ACTIVE))
    source = open_source(workspace, "default")
    namespace: dict[str, Any] = {"source": source}
    exec(compile(block.text, block.name, "exec"), namespace)
    found = namespace["found"]
    assert (len(found.hits), found.problem) == (3, None)
    with open_pool(workspace, "default") as pool:
        counted = pool.find(found.ids[0]).counters
    assert (counted.used, counted.won, counted.control_lost) == (1, 1, 1)


def a_policy_block(block: Block, folder: Path) -> None:
    """Conditions are in their language and divide the models as the page says."""
    rules = yaml.safe_load(block.text)["learning_rate"]
    for rule in rules:
        check_condition(rule["when"])
    assert [matches(rule["when"], {"params": 960_000}) for rule in rules] == [True, False]
    assert [matches(rule["when"], {"params": 500_000_000}) for rule in rules] == [False, True]


def settings_of_experience(block: Block, folder: Path) -> None:
    """As part of a workspace's config.yaml."""
    workspace = create_workspace(folder / ".mcp-evo")
    workspace.config_path.write_text(block.text, encoding="utf-8")
    found = settings_of(workspace)
    assert found.endpoint is not None
    assert found.endpoint.base_url == "http://127.0.0.1:8000/v1"
    assert found.reme is not None
    assert found.reme.workspace_id == "default"


def rules_of_redaction(block: Block, folder: Path) -> None:
    """As part of a workspace's config.yaml; each of the three does what its comment says."""
    workspace = create_workspace(folder / ".mcp-evo")
    workspace.config_path.write_text(block.text, encoding="utf-8")
    rules = rules_of(workspace.root)
    assert "ACME-12345678" not in rules.redact_text("number ACME-12345678")
    assert "k7Lq9ZtR2wXv" not in json.dumps(rules.redact({"badge_number": "k7Lq9ZtR2wXv"}))
    kept = "api_key = 'example-key-abcdefghijkl'"
    assert rules.redact_text(kept) == kept


def settings_of_a_bank(block: Block, folder: Path) -> None:
    """In the place of the shipped bank's settings, which it still compiles with."""
    shutil.copytree(Path(skill_bank.__file__).parent / "bank", folder / "bank")
    place = folder / "bank" / "bank.yaml"
    document = yaml.safe_load(place.read_text(encoding="utf-8"))
    document |= yaml.safe_load(block.text)
    place.write_text(yaml.safe_dump(document, allow_unicode=True, sort_keys=False), encoding="utf-8")
    assert SkillBank(folder / "bank").check("all") == ()


def an_example_of_a_skill(block: Block, folder: Path) -> None:
    """Read by what reads examples in skills."""
    found, wrong = examples_of("rllm-run", SourceFile("base.md", block.text))
    assert wrong == []
    assert [one.title for one in found] == ["To the end of a run"]


def a_claim(block: Block, folder: Path) -> None:
    """Read as `claims=[…]` reads it."""
    (claim,) = claims_from([json.loads(block.text)])
    assert claim.value == "0.54"


CHECKS: dict[tuple[str, str, str], Check] = {
    ("docs/training.md", "python", "class Shop"): an_environment_class,
    ("docs/training.md", "python", "def my_reward"): two_rewards,
    ("docs/experience.md", "python", "source.open_now"): a_source_of_lessons,
    ("docs/architecture.md", "yaml", "learning_rate:"): a_policy_block,
    ("docs/experience.md", "yaml", "experience:"): settings_of_experience,
    ("docs/trajectories.md", "yaml", "redaction:"): rules_of_redaction,
    ("docs/skills.md", "yaml", "settings:"): settings_of_a_bank,
    ("docs/skills.md", "markdown", "python example"): an_example_of_a_skill,
    ("docs/trajectories.md", "json", '"metric"'): a_claim,
}
"""Page, language and a text of the block → what is done with it."""


@pytest.mark.parametrize("block", SNIPPETS, ids=lambda block: block.name)
def test_the_snippet_does_what_the_page_says(block: Block, tmp_path: Path) -> None:
    known = [
        check
        for (page, language, text), check in CHECKS.items()
        if (page, language) == (block.page, block.language) and text in block.text
    ]
    assert len(known) == 1, f"{block.name}: a block in {block.language or 'no language'} needs an entry in CHECKS"
    known[0](block, tmp_path)


def test_every_check_has_its_snippet() -> None:
    for page, language, text in CHECKS:
        assert any((one.page, one.language) == (page, language) and text in one.text for one in SNIPPETS), (page, text)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_configurations(example: Path) -> None:
    resolved = resolve(config_file=example)
    assert isinstance(resolved.config, TrainingConfig)
    assert resolved.unknown == ()
