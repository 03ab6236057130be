"""Evidence to patches: events, segments, findings, proposals, paired trials, approvals, rounds. Never imports torch."""
