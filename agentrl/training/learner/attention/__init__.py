"""Attention masks of packed batches, and kernels that skip masked blocks."""
