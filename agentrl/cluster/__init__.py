"""The Ray cluster in which a run's actors live."""
