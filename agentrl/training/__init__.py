"""Algorithms, batching, the learner, checkpoints, evaluation and the loop over all of them."""

import os

# Before torch is loaded: its threads otherwise spin while they wait, and on a machine whose cores
# also run phones and an engine they then mostly wait for each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
