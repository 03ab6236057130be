"""Entry points of other packages, and time-outs that an environment sets for its tools."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainer.envs import registry
from trainer.envs.base import EnvironmentFault, EnvironmentSpec
from trainer.rollout.types import Limits, StopReason

SHOP = '''
class Shop:
    def reset(self, **row): return None
    def get_reward(self): return 1.0
    def price(self, item: str) -> str:
        """
        Look up a price.

        Args:
            item: The item.
        """
        return "3"
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """install(distribution, entry points file, module=source): a package as pip leaves it, on `sys.path`."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    modules: list[str] = []

    def make(distribution: str, entry_points: str, **sources: str) -> None:
        folder = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(entry_points)
        for module, source in sources.items():
            (site / f"{module}.py").write_text(source)
            modules.append(module)

    yield make
    for module in modules:
        sys.modules.pop(module, None)


def points(**names: str) -> str:
    return "[mcp_evo.environments]\n" + "".join(f"{name} = {value}\n" for name, value in names.items())


def test_the_environment_of_another_package_is_found_and_plays(install, scripted) -> None:
    install("acme-shop", points(acme_shop="acme_shop_module:Shop"), acme_shop_module=SHOP)
    assert "acme_shop" in registry.names()
    spec = registry.load("acme_shop")
    assert (spec.name, spec.tools) == ("acme_shop", ("price",))
    (episode,), _ = scripted([["ok"]], spec)
    assert episode.reward == 1.0


@pytest.mark.parametrize(
    ("value", "source", "words"),
    [
        ("broken_module:Shop", "raise RuntimeError('licence expired')", "RuntimeError: licence expired"),
        ("broken_module:Shop", "import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
        ("broken_module:Missing", SHOP, "has no attribute 'Missing'"),
        ("not_there:Shop", SHOP, "No module named 'not_there'"),
        ("broken_module:Shop.price.too.deep", SHOP, "has no attribute 'too'"),
        ("broken_module", SHOP, "is not a class"),
        ("not a reference!", SHOP, "cannot be loaded"),
    ],
)
def test_a_broken_one_is_named_with_its_package_and_hurts_no_other(
    install, value: str, source: str, words: str
) -> None:
    install("acme-broken", points(broken_shop=value), broken_module=source)
    with pytest.raises(EnvironmentFault) as caught:
        registry.load("broken_shop")
    assert "broken_shop" in str(caught.value)
    assert words in str(caught.value)
    if "is not a class" not in words:
        assert "package acme-broken" in str(caught.value)
    assert registry.load("calculator").tools == ("calculate", "finish")
    assert {"broken_shop", "calculator"} <= set(registry.names())


@pytest.mark.parametrize(
    "text",
    ["[mcp_evo.environments]\nno equals sign\n", "[unclosed\nx = y\n", "\x00\x01", "= :\n[mcp_evo.environments]\n="],
)
def test_malformed_metadata_of_one_package_hurts_no_other(install, text: str) -> None:
    install("acme-garbled", text)
    install("acme-shop", points(acme_shop="acme_shop_module:Shop"), acme_shop_module=SHOP)
    assert {"calculator", "acme_shop"} <= set(registry.names())
    assert registry.load("acme_shop").tools == ("price",)


def test_two_packages_with_one_name_are_both_named(install) -> None:
    install("acme-one", points(shop="acme_shop_module:Shop"), acme_shop_module=SHOP)
    install("acme-two", points(shop="other_shop:Shop"), other_shop=SHOP)
    with pytest.raises(EnvironmentFault, match=r"several packages: acme-one .*acme-two .*env=python:module:Class"):
        registry.load("shop")


def test_a_misspelt_name_offers_the_nearest_of_all_packages(install) -> None:
    install("acme-shop", points(acme_shop="acme_shop_module:Shop"), acme_shop_module=SHOP)
    with pytest.raises(EnvironmentFault, match="Did you mean acme_shop"):
        registry.load("acme_shp")


def test_settings_know_it_too(install) -> None:
    from trainer.settings import resolve

    install("acme-shop", points(acme_shop="acme_shop_module:Shop"), acme_shop_module=SHOP)
    assert resolve(overrides=["env=acme_shop"]).config.env == "acme_shop"


# ---- time-outs


class Slow:
    tool_timeouts = {"patient": 5}  # noqa: RUF012 - as users write it
    call_timeout_s = 0.05

    def reset(self, **row: object) -> None: ...

    def get_reward(self) -> float:
        return 1.0

    def hasty(self) -> str:
        """Answer late."""
        time.sleep(0.3)
        return "late"

    def patient(self) -> str:
        """Answer late, but in time."""
        time.sleep(0.3)
        return "in time"


def call(name: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>'


def test_every_tool_has_its_own_time(scripted) -> None:
    spec = EnvironmentSpec.of("slow", Slow)
    assert spec.timeouts == {"hasty": 0.05, "patient": 5.0}
    episodes, _ = scripted([[call("patient"), "fine"], [call("hasty")]], spec, limits=Limits(tool_timeout_s=0.1))
    assert (episodes[0].stop_reason, episodes[0].messages[2]["content"]) == (StopReason.COMPLETED, "in time")
    assert (episodes[1].stop_reason, episodes[1].error) == (
        StopReason.TOOL_TIMEOUT,
        "hasty: no answer within 0.05 s",
    )


def test_without_time_outs_of_its_own_the_runs_limit_counts(scripted) -> None:
    class Plain(Slow):
        tool_timeouts = {}  # noqa: RUF012
        call_timeout_s = None

    spec = EnvironmentSpec.of("plain", Plain)
    assert spec.timeouts == {}
    (episode,), _ = scripted([[call("patient")]], spec, limits=Limits(tool_timeout_s=0.05))
    assert (episode.stop_reason, episode.error) == (StopReason.TOOL_TIMEOUT, "patient: no answer within 0.05 s")


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        (
            {"tool_timeouts": {"nothing": 3}},
            r"names 'nothing', which is no tool. Tools: hasty, patient; allowed beside them: reset,",
        ),
        ({"tool_timeouts": {"reset": 0}}, r"time-out of reset is 0;"),
        ({"tool_timeouts": {"hasty": 0}}, r"time-out of hasty is 0;"),
        ({"tool_timeouts": {"hasty": "3"}}, r"time-out of hasty is '3'"),
        ({"tool_timeouts": {"hasty": True}}, r"time-out of hasty is True"),
        ({"tool_timeouts": {"hasty": float("nan")}}, r"time-out of hasty is nan"),
        ({"tool_timeouts": [3]}, r"must be a mapping"),
        ({"call_timeout_s": 1e9}, r"at most 3600"),
    ],
)
def test_a_time_out_that_makes_no_sense_is_refused(attributes: dict, words: str) -> None:
    with pytest.raises(EnvironmentFault, match=words):
        EnvironmentSpec.of("slow", type("Mine", (Slow,), attributes))
