"""Evaluation outside a run: plan, folder, scores. Free of torch; `trainer.evaluate_main` is the child process."""
