"""Learning: configuration, environments, models, rollouts, GRPO, runs."""
