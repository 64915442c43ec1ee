"""Which tokens of a batch attend to which, and kernels that skip the others."""
