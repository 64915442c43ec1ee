"""Several ranks: process group, sharding, checkpoints, and shared rows."""
