"""Mini-games of WeChat: a game inside an app, with a capsule that leads out of it."""
