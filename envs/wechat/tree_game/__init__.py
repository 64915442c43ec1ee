"""The tree game: a WeChat mini-program, a game inside another app that the agent can leave."""
