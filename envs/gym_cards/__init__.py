"""NumberLine and EZPoints, with the rules and pictures of gym-cards."""
