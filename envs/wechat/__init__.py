"""Mini-games of WeChat."""
