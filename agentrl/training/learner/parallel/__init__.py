"""Parallelism over ranks: process group, sharding, sharded checkpoints, and shared rows."""
