"""Inference engines that sample tokens: vLLM, transformers and remote servers."""
