"""A scripted player of MiniGrid's environments, and the state of their rooms."""
