"""How weights travel from the learner to the engines."""
