"""Detectors: the live watch over a run. One detector a file, each a description and a pure function.

1. A detector looks at what is known after a step (or a validation, or about the process) and gives one sighting with
   its evidence, or nothing. It sees a prefix of the run and nothing else, so that judging line by line and judging the
   whole file give the same alerts.
2. A metric that was not measured is missing, never zero: a detector that needs it is `skipped`, and says which.
3. Thresholds come from the policy of `rllm-monitor`; the code holds none of them.
4. An alert is "look here" with its numbers, no verdict. What held a finished run back is the diagnosis
   (`trainer.runs.diagnose`), whose findings carry levers.
5. Crashes are told by exception type and exit status (`Failure.kind`), never by words in a log.

`types` values · `history` the series of a prefix · `policy` thresholds · `catalogue` the list ·
`monitor` the live state · `feed` a run directory, read as it grows.
"""
