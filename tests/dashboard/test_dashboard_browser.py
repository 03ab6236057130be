"""The page in a real browser: nothing but text from the workspace, no policy broken, phone width, keyboard, colours."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browsing
from dashboard_helpers import HOSTILE, Made, Running, dashboard_of, row_of

from mcp_server.dashboard.page import page_for
from trainer.runs.rundir import RunDirectory
from trainer.runs.types import RunState

CAUGHT = "document.title === 'caught' || document.querySelector('main img, main script, main iframe') !== null"

HEADING = "document.querySelector('main h1')"


@pytest.fixture(scope="module")
def chrome(chromium: str) -> Iterator[Browser]:
    with browsing(chromium) as found:
        yield found


@pytest.fixture(scope="module")
def shared(made_once: Made, chrome: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A dashboard that nothing is changed on, open in the browser."""
    with dashboard_of(made_once.root, tmp_path_factory.mktemp("shared") / "log") as found:
        enter(chrome, found)
        yield found


def enter(chrome: Browser, dashboard: Running) -> None:
    """Opens the link as a person would."""
    chrome.show(1180, 860)
    chrome.open(dashboard.ready["link"])
    chrome.until(f"{HEADING}.textContent === 'Runs' && location.hash === ''")


def visit(chrome: Browser, dashboard: Running, place: str, heading: str) -> None:
    """Goes to a part of the page and waits until it is there."""
    chrome.open(f"{dashboard.origin}/#/{place}")
    chrome.until(f"{HEADING}.textContent === {json.dumps(heading)}")


def places(made: Made) -> dict[str, str]:
    """Every view and its heading."""
    return {
        "runs": "Runs",
        "runs/run-one": "run-one",
        "runs/run-one/episodes": "Episodes of step 30",
        "runs/run-one/episodes/30/0": "Episode 1 of 1",
        "rounds": "Rounds",
        "patches": "Patches",
        f"patches/{made.patch_id}": made.patch_id,
        f"patches/{made.prose_id}": made.prose_id,
        "experience": "Experience",
        "experience/default": "default",
        "skills": "Skills",
        "skills/rllm-config": "rllm-config",
    }


def test_everything_is_shown_and_nothing_is_carried_out(chrome: Browser, shared: Running, made_once: Made) -> None:
    chrome.problems.clear()
    for place, heading in places(made_once).items():
        visit(chrome, shared, place, heading)
        assert not chrome.run(CAUGHT), place
        assert chrome.run("document.querySelectorAll('script').length") == 1
        if place in ("runs", "runs/run-one/episodes/30/0", f"patches/{made_once.prose_id}", "experience/default"):
            assert HOSTILE in chrome.text(), place  # as the text that it is
    assert chrome.problems == []
    assert {re.sub(r"^(http://[^/]+|[a-z]+:).*", r"\1", one) for one in chrome.requests} <= {shared.origin, "data:"}
    assert "login" not in chrome.run("location.href")


def test_the_policy_holds_against_what_is_put_in(chrome: Browser, shared: Running) -> None:
    visit(chrome, shared, "runs", "Runs")
    assert "TrustedHTML" in chrome.run(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; } catch (error) { return String(error); } })()"
    )
    chrome.run("document.body.append(Object.assign(document.createElement('img'), {src: '/api/overview'}))")
    chrome.run("fetch('https://evil.example/').catch(() => 0)")
    chrome.run("new Promise((then) => setTimeout(then, 200))")
    assert [one for one in chrome.problems if "Content Security Policy" in one]
    assert not [one for one in chrome.requests if one.endswith("evil.example/") and "blocked" in one]
    chrome.problems.clear()


@pytest.mark.parametrize("width", [360, 412, 768])
def test_no_view_scrolls_sideways(chrome: Browser, shared: Running, made_once: Made, width: int) -> None:
    chrome.show(width, 740, touch=width < 600)
    for place, heading in places(made_once).items():
        visit(chrome, shared, place, heading)
        assert chrome.run("document.documentElement.scrollWidth") <= width, place
    chrome.show(1180, 860)


def contrast(first: list[float], second: list[float]) -> float:
    """Ratio of two colours by WCAG 2 (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""

    def luminance(colour: list[float]) -> float:
        parts = [one / 255 for one in colour]
        linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_contrast_by_numbers_worked_out_elsewhere() -> None:
    assert contrast([0, 0, 0], [255, 255, 255]) == pytest.approx(21)
    assert contrast([118, 118, 118], [255, 255, 255]) == pytest.approx(4.54, abs=0.01)  # the usual example of AA


COLOURS = """(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = numbers(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] > 0.99) return found.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !node.checkVisibility() || node.closest('svg, script, style')) continue;
    found.push([texts.currentNode.data.slice(0, 40), numbers(getComputedStyle(node).color).slice(0, 3), behind(node)]);
  }
  return found;
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_can_be_read(chrome: Browser, shared: Running, made_once: Made, dark: bool) -> None:
    chrome.show(1180, 860, dark=dark)
    for place, heading in places(made_once).items():
        visit(chrome, shared, place, heading)
        ground = chrome.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 3 * 64) is dark
        texts = chrome.run(COLOURS)
        assert len(texts) > 8
        for text, colour, ground_of_it in texts:
            assert contrast(colour, ground_of_it) >= 4.5, (place, text, colour, ground_of_it)
    chrome.show(1180, 860)


def test_lists_and_curves_by_keyboard(chrome: Browser, shared: Running, made_once: Made) -> None:
    visit(chrome, shared, "skills", "Skills")
    chrome.press("ArrowDown")
    assert chrome.run("document.activeElement.matches('a.row')")
    first = chrome.run("document.activeElement.hash")
    chrome.press("ArrowDown", "ArrowDown", "ArrowUp")
    assert chrome.run("document.activeElement.hash") != first
    chrome.press("Home")
    assert chrome.run("document.activeElement.hash") == first
    assert chrome.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"  # the focus can be seen
    chrome.press("Enter")
    chrome.until(
        f"location.hash === {json.dumps(first)} && {HEADING}.textContent === {json.dumps(first.split('/')[-1])}"
    )
    assert chrome.run("document.activeElement.tagName") == "H1"  # a reader goes on at the new heading
    chrome.press("Escape")
    chrome.until(f"location.hash === '#/skills' && {HEADING}.textContent === 'Skills'")
    visit(chrome, shared, "runs/run-one", "run-one")
    chrome.run("document.querySelector('.plot').focus()")
    read = "document.querySelector('.chart .read').textContent"
    assert chrome.run(read).startswith("last, step 30: 1")
    chrome.press("Home")
    assert chrome.run(read).startswith("step 1: 0.0333")
    chrome.press(*["ArrowRight"] * 9)
    assert chrome.run(read) == "step 10: 0.333 · validation 0.500 [0.40, 0.60] n=128"
    chrome.press("Escape")
    chrome.until("location.hash === '#/runs'")
    visit(chrome, shared, "runs/run-one/episodes/30/0", "Episode 1 of 1")
    chrome.run("document.querySelector('.tokens').focus()")
    chrome.press("ArrowRight", "ArrowRight")
    assert "probability 0.135" in chrome.run("document.querySelector('.tokens + .read').textContent")  # e^-2
    chrome.press("ArrowRight")
    assert "not trained on" in chrome.run("document.querySelector('.tokens + .read').textContent")


def test_a_skip_link_is_the_first_thing_that_tab_reaches(chrome: Browser, shared: Running) -> None:
    visit(chrome, shared, "rounds", "Rounds")
    chrome.run("document.activeElement.blur(); document.body.tabIndex = -1; document.body.focus()")
    chrome.press("Tab")
    assert chrome.run("document.activeElement.id") == "skip"
    assert chrome.run("document.activeElement.getBoundingClientRect().top") >= 0
    chrome.press("Enter")
    assert chrome.run("document.activeElement.id") == "content"


def test_a_patch_is_approved_by_keyboard(chrome: Browser, made: Made, tmp_path: Path) -> None:
    with dashboard_of(made.root, tmp_path / "log") as dashboard:
        enter(chrome, dashboard)
        chrome.problems.clear()
        chrome.until("document.querySelector('.count').textContent === '2'")
        visit(chrome, dashboard, f"patches/{made.patch_id}", made.patch_id)
        digest = chrome.run("document.querySelector('#digest').textContent").split()[-1]
        for _ in range(60):
            chrome.press("Tab")
            if chrome.run("document.activeElement.id") == "typed":
                break
        chrome.press("zzzzzz", "Enter")
        chrome.until("document.querySelector('.said').textContent.includes('nothing was approved')")
        assert made.audit() == []
        chrome.problems.clear()  # the browser notes the refusal's status as an error
        chrome.run("document.querySelector('#typed').select()")
        chrome.press(digest[:6], "Enter")
        chrome.until("document.querySelector('main .badge').textContent === 'active'")
        assert "in force as rllm-config@2" in chrome.run("document.querySelector('#notice').textContent")
        assert [(one["kind"], one["channel"]) for one in made.audit()] == [
            ("approved", "dashboard"), ("promoted", "dashboard"),
        ]  # fmt: skip
        assert not chrome.run("!!document.querySelector('.decide')")
        assert chrome.problems == []


def test_a_run_goes_on_while_somebody_looks(chrome: Browser, made: Made, tmp_path: Path) -> None:
    run = RunDirectory(made.root / "runs" / made.run_id)
    document = json.loads(run.document_path.read_text())
    run.document_path.write_text(json.dumps({**document, "state": "queued", "verdict": None, "ended_at": None}))
    with dashboard_of(made.root, tmp_path / "log") as dashboard:
        enter(chrome, dashboard)
        visit(chrome, dashboard, f"runs/{made.run_id}", made.run_id)
        read = "document.querySelector('.chart .read').textContent"
        assert chrome.run(read).startswith("last, step 30")
        run.append_metrics({**row_of(31, 30), "reward_mean": 0.25})
        chrome.until(f"{read}.startsWith('last, step 31: 0.25')")
        run.finish(RunState.STOPPED, stop_reason="user")
        chrome.until("document.querySelector('main .badge').textContent === 'stopped'")


def test_without_the_link_nothing_is_shown(chrome: Browser, made: Made, tmp_path: Path) -> None:
    with dashboard_of(made.root, tmp_path / "log") as dashboard:
        chrome.open(f"{dashboard.origin}/#/patches")
        chrome.until(f"{HEADING}.textContent === 'This page needs its link'")
        assert made.patch_id not in chrome.text()
        chrome.open(dashboard.ready["link"].replace("#login=", "#login=x"))
        chrome.until(f"{HEADING}.textContent === 'This page needs its link'")
        chrome.problems.clear()  # the browser notes the status 401


HOST = """
const frame = document.createElement('iframe');
frame.sandbox = 'allow-scripts';
window.asked = [];
window.addEventListener('message', async (event) => {
  const { id, method, params } = event.data;
  window.asked.push(method + (params && params.uri ? ' ' + params.uri : ''));
  if (id === undefined || method === undefined) return;
  const result = method === 'ui/initialize'
    ? {
        protocolVersion: '2026-01-26', hostInfo: { name: 'x', version: '1' },
        hostCapabilities: { serverResources: {} }, hostContext: { theme: 'dark' },
      }
    : { contents: [{ uri: params.uri, text: JSON.stringify(DOCUMENTS[params.uri]) }] };
  event.source.postMessage({ jsonrpc: '2.0', id, result }, '*');
});
frame.srcdoc = PAGE;
document.body.replaceChildren(frame);
"""
"""A client that shows the page in a sandboxed frame and passes its questions on."""


def test_the_page_inside_a_client(chrome: Browser, made_once: Made) -> None:
    from mcp_server.dashboard.documents import answer
    from mcp_server.dashboard.source import Source

    asked = ("overview", "runs/~limit=40", "runs/run-one", "runs/run-one/steps/~since=0")
    source = Source(made_once.state)
    documents = {}
    for path in asked:
        where, _, values = path.partition("/~")
        documents[f"evo://dashboard/{path}"] = answer(source, where, dict([values.split("=")]) if values else {})
    chrome.open("about:blank")
    chrome.until("location.href === 'about:blank'")
    chrome.problems.clear()
    script = HOST.replace("DOCUMENTS", json.dumps(documents)).replace("PAGE", json.dumps(page_for("app").html))
    chrome.run(f"(() => {{ {script} }})()")
    chrome.until("window.asked.includes('resources/read evo://dashboard/runs/~limit=40')")
    chrome.until("window.asked.includes('ui/notifications/size-changed')")
    assert chrome.run("window.asked[0]") == "ui/initialize"
    assert chrome.problems == []
