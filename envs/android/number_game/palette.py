"""Colors and font sizes of the number game, for drawing and for reading the screen."""

PAGE = (238, 241, 246)
PANEL = (255, 255, 255)
EDGE = (206, 213, 224)
INK = (28, 36, 52)
QUIET = (122, 132, 150)
UNLIT = (196, 202, 212)
BLUE = (38, 99, 235)
BACK = (88, 104, 140)
RIGHT = (34, 160, 84)
WRONG = (214, 56, 56)
LIT = {"green": (22, 190, 76), "yellow": (250, 196, 20), "red": (232, 48, 44)}

FONTS = {
    (False, 1): (0.27, 0.005),
    (False, 2): (0.19, 0.004),
    (True, 1): (0.22, 0.005),
    (True, 2): (0.13, 0.003),
}
"""Font size and boldness of the numbers on cards; keys: (is narrow, number of digits)."""

VALUES = 0.085
"""Font size on the score board, as a share of the width like the others."""
