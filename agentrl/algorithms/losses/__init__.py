"""Policy losses per token, one file each."""
