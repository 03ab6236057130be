"""The worker looks before and while it trains: notices and alerts are events, and may end the run."""

from pathlib import Path

import pytest
from test_worker import create, train

from trainer.runs.types import RunState


def test_a_notice_is_an_event_and_the_run_goes_on(tmp_path: Path) -> None:
    """A cap of 24 tokens cuts the episodes of the calculator: said before step 1, with numbers and advice."""
    directory = create(tmp_path, max_completion_tokens=24, max_steps=1, test_problems=8)
    assert train(directory).returncode == 0
    kinds = [event["kind"] for event in directory.events()]
    notices = [event for event in directory.events() if event["kind"] == "preflight"]
    first = next(event for event in notices if event["id"] == "P1")
    assert first["severity"] == "warn"
    assert "max_completion_tokens" in first["advice"]
    assert first["numbers"]
    assert kinds.index("preflight") < kinds.index("model")
    assert directory.read_document().state is RunState.FINISHED


def test_a_prompt_longer_than_the_model_can_read_ends_the_run(tmp_path: Path) -> None:
    directory = create(tmp_path, system_prompt="Solve the task with the tools. " * 600, skip_eval_before=False)
    assert train(directory).returncode == 1
    document = directory.read_document()
    assert document.failure is not None
    assert document.failure.kind == "preflight"
    assert "tokens" in document.failure.message
    assert not directory.metrics()


@pytest.mark.slow
def test_a_critical_anomaly_ends_the_run_only_where_that_is_allowed(tmp_path: Path) -> None:
    """With a cap of 16 tokens nearly every episode is cut: an alert in both runs, the end of one of them."""
    for allowed in (False, True):
        directory = create(
            tmp_path, f"run{allowed}", max_completion_tokens=16, max_steps=10, validate_every=0, auto_stop=allowed
        )
        assert train(directory).returncode == 0
        document = directory.read_document()
        alerts = [event for event in directory.events() if event["kind"] == "alert"]
        assert any(alert["severity"] == "critical" for alert in alerts), alerts
        if allowed:
            assert document.state is RunState.STOPPED
            assert document.stop_reason is not None
            assert document.stop_reason.startswith("anomaly: ")
            assert document.step < 10
        else:
            assert document.state is RunState.FINISHED
            assert document.step == 10
