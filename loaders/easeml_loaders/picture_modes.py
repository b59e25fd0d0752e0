"""The meaning of a picture's numbers: its upper side, its background, the bits of its greys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from easeml_plpy.server.errors import InvalidData

if TYPE_CHECKING:
    from PIL import Image

PHOTOMETRIC, WHITE_IS_ZERO = 262, 0
"""The tag of a TIFF that says what its numbers mean, and one of its values."""
GROUND = "white"
"""The colour behind transparent pixels if the output has no alpha: viewers use white, and drawings are black."""
ORIENTATION = 0x0112
"""The tag of EXIF that says how a camera was held; from 5 on its sides are swapped."""
TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""The transposition that undoes each orientation, by Pillow's name."""


def upright_size(picture: Image.Image) -> tuple[int, int]:
    """Return the width and the height of a picture as it is shown."""
    width, height = picture.size
    return (height, width) if orientation(picture) >= 5 else (width, height)


def orientation(picture: Image.Image) -> int:
    """Return the orientation of a picture in EXIF, 1 to 8; 1 if it has none, or one that cannot be read.

    A PNG may have it behind its pixels, so its size must have been checked.
    """
    if picture.format == "PNG":
        picture.load()
    if "exif" not in picture.info or picture.format == "TIFF":  # Pillow turns those itself, and swaps their size
        return 1
    try:
        tag = picture.getexif().get(ORIENTATION)
    except Exception:  # noqa: BLE001  what is wrong with notes beside the pixels is no fault of the pixels
        return 1
    return tag if isinstance(tag, int) and 1 <= tag <= 8 else 1


def upright(picture: Image.Image, turned: int) -> Image.Image:
    """Return a picture of an orientation as it is shown."""
    if turned == 1:
        return picture
    from PIL.Image import Transpose

    return picture.transpose(Transpose[TURNS[turned]])


def eight_bits(picture: Image.Image, path: Path, mode: str) -> Image.Image:
    """Return a picture in a mode of 8 bits. Raises InvalidData if the meaning of its numbers there is undefined."""
    from PIL import Image

    if picture.mode == mode and (mode == "RGBA" or "transparency" not in picture.info):
        return picture
    if has_wide_greys(picture):  # Pillow would cut off at 255 what goes to 65,535
        greys = (np.asarray(picture) >> 8).astype(np.uint8)
        picture = Image.fromarray(255 - greys if _is_white_least(picture) else greys)
    elif picture.mode in ("I", "F"):
        raise InvalidData(
            f"{path.name}: expected 8 or 16 bits for each value, got 32: nothing says which of them are black and white"
        )
    elif picture.has_transparency_data and mode != "RGBA":
        picture = _on_ground(picture)
    return picture.convert(mode)


def is_grey(picture: Image.Image) -> bool:
    """Return whether a picture has greys and no colours."""
    return picture.mode in ("1", "L", "LA") or has_wide_greys(picture)


def has_wide_greys(picture: Image.Image) -> bool:
    """Return whether a picture has greys of 16 bits; Pillow scales those of a PGM to all of them."""
    return picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format in ("PNG", "PPM"))


def _is_white_least(picture: Image.Image) -> bool:
    """Return whether 0 is white, as a TIFF may say: Pillow inverts such greys of 8 bits, and not those of 16."""
    return picture.format == "TIFF" and getattr(picture, "tag_v2", {}).get(PHOTOMETRIC) == WHITE_IS_ZERO


def _on_ground(picture: Image.Image) -> Image.Image:
    """Return a picture in colours on the background that its alpha shows."""
    from PIL import Image

    drawn = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", drawn.size, GROUND), drawn)
