"""From what a run or a session shows to advice and staged patches, for tools and commands alike."""
