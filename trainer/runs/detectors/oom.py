"""A run that ran out of memory."""

from trainer.runs.detectors.crash import OUT_OF_MEMORY
from trainer.runs.detectors.types import Detector, Evidence, Occasion, Severity, Sighting, View


def judge(view: View) -> Sighting | None:
    failure = view.process.failure
    if failure is None or failure.kind != OUT_OF_MEMORY:
        return None
    step = view.history.last_step
    say = f"The run ran out of memory after step {step}: {failure.message}"
    return Sighting(Severity.CRITICAL, say, (Evidence(step, "exit_code", failure.exit_code),))


DETECTOR = Detector(
    id="oom",
    number=26,
    severity=Severity.CRITICAL,
    rule="an exception of an out-of-memory type, or SIGKILL while the kernel's count of out-of-memory kills rose",
    cause="too many or too long episodes for the memory",
    advice="Lower batch_size, num_generations or max_completion_tokens, or set lora=true.",
    source="catalogue 26",
    judge=judge,
    occasions=frozenset({Occasion.PROCESS}),
    warmup_steps=0,
)
