"""Types shared by all parts of the phone."""

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
"""RGB image, uint8[H, W, 3]."""
