"""Play episodes, score them, collect groups; the Ray actors that do it at scale."""
