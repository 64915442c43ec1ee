"""Six small phone games: 2048, Timberman, Snake, Flip, Flappy Bird and a space fighter."""
