"""The model that a rank computes: without a head, or with one for log-probabilities or rewards."""
