"""Play episodes, score them and collect them in groups, locally or in Ray actors."""
