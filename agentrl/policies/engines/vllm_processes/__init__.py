"""Folder on the PYTHONPATH of the processes that vLLM starts; see sitecustomize.py."""
