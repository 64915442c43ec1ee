"""FSDP2 ranks: models, optimizers, critic, adapters, sequence parallelism."""
