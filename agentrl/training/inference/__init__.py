"""Inference without an environment: batches of prompts, and chats."""
