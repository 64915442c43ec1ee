"""Colours that the small games share: light, so that what matters stands out."""

from agentrl.envs.phone_game.paint import Colour

PAGE: Colour = (238, 241, 246)
PANEL: Colour = (255, 255, 255)
EDGE: Colour = (206, 213, 224)
INK: Colour = (28, 36, 52)
QUIET: Colour = (122, 132, 150)
GREEN: Colour = (34, 160, 84)
DARK_GREEN: Colour = (16, 92, 52)
RED: Colour = (214, 56, 56)
BLUE: Colour = (38, 99, 235)
YELLOW: Colour = (250, 196, 20)
ORANGE: Colour = (240, 130, 30)
PURPLE: Colour = (140, 70, 190)
BROWN: Colour = (140, 92, 52)
GREY: Colour = (120, 126, 138)
