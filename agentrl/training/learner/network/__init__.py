"""The model that a rank computes: its backbone, and heads for log-probabilities or rewards."""
