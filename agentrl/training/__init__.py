"""Learning from scored episodes: algorithms, batches, the sharded learner and the loop."""
