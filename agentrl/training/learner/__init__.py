"""The learner's FSDP2 ranks: models, optimizers, critic, adapters, sequence parallelism."""
