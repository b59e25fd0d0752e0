"""Pictures as 8-bit tensors; an error names a file that cannot be read.

Pillow reads them. Only the formats below are tried, and a header that promises more pixels than a tensor may hold is
refused before any of them is unpacked.
"""

from __future__ import annotations

import io
import os
import stat
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from easeml_loaders.picture_bombs import check_fill, check_pixels, check_scans
from easeml_loaders.picture_labels import Skipped, Wanted, is_known
from easeml_loaders.picture_modes import eight_bits, is_grey, orientation, upright, upright_size
from easeml_loaders.source import CHUNK_BYTES, Chunk, Column, Source, Values
from easeml_plpy.server.errors import InvalidData

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}


def picture_size(folder: Path, labels: Sequence[tuple[str, str]]) -> tuple[int, int, int]:
    """Return the shape of the first picture that can be read. Raises InvalidData."""
    from PIL import Image

    problem: InvalidData | None = None
    for name, _ in labels[:100]:
        try:
            path = Place(folder).of(name)
            check_fill(path)
            with strictly(), Image.open(path, formats=FORMATS) as picture:
                check_pixels(path, picture.size)
                width, height = upright_size(picture)
                return height, width, 1 if is_grey(picture) else 3
        except InvalidData as error:
            problem = error
        except Exception as error:  # noqa: BLE001  Pillow raises whatever a broken file leads to
            problem = InvalidData(f"{name}: cannot be read as a picture: {_reason(error)}")
    raise problem or InvalidData(f"{folder}: no pictures")


def read_picture(path: Path, form: Wanted) -> bytes:
    """Return the pixels of a picture, row by row. Raises InvalidData for a broken one, and for another size."""
    with strictly():
        return pixels_of(path, form)


@contextmanager
def strictly() -> Iterator[None]:
    """Make an error of Pillow's warning of files that unpack to very many pixels; not cheap for each file.

    Its others say nothing of pixels: broken EXIF data, a palette whose colours are transparent.
    """
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def pixels_of(path: Path, form: Wanted) -> bytes:
    """Do the work of `read_picture`, within `strictly`."""
    from PIL import Image

    height, width, channels = form.shape
    try:
        check_fill(path)
        with Image.open(path, formats=FORMATS) as picture:
            check_pixels(path, picture.size)
            if picture.format in ("JPEG", "MPO"):
                check_scans(path, picture.size[0] * picture.size[1])
            _check_size(path, upright_size(picture), form)
            converted = upright(eight_bits(picture, path, MODES[channels]), orientation(picture))
            if converted.size != (width, height):
                converted = converted.resize((width, height), Image.Resampling.BILINEAR)
            return converted.tobytes()
    except InvalidData:
        raise
    except Exception as error:
        raise InvalidData(f"{path.name}: cannot be read as a picture: {_reason(error)}") from error


def png_of(pixels: NDArray[np.uint8]) -> bytes:
    """Return 8-bit pixels (height, width) or (height, width, channels) as a PNG."""
    from PIL import Image

    height, width, channels = [*pixels.shape, 1][:3]
    file = io.BytesIO()
    Image.frombytes(MODES[channels], (width, height), np.ascontiguousarray(pixels).tobytes()).save(file, "PNG")
    return file.getvalue()


def array_source(
    images: NDArray[np.uint8], labels: Sequence[str] | NDArray[np.uint8], form: Wanted, skipped: Skipped
) -> Source:
    """Return pictures of one array (n, height, width, channels) with their labels, or with their output pictures, as
    columns input and output.
    """
    _check_array(images, form)
    if len(images) != len(labels):
        raise InvalidData(f"{len(images)} images have {len(labels)} labels")
    rows = max(1, CHUNK_BYTES // int(np.prod(form.shape)))
    starts = range(0, len(images), rows)
    if isinstance(labels, np.ndarray):
        _check_array(labels, form.output or form)
        columns = (Column("input", "bytea"), Column("output", "bytea"))
        both = (images, labels)

        def pairs() -> Iterator[Chunk]:
            return ([Values(_flat(pictures[start : start + rows])) for pictures in both] for start in starts)

        return Source(columns, len(images), pairs, "arrays of images")
    texts = labels

    def chunks() -> Iterator[Chunk]:
        for start in starts:
            part, given = _flat(images[start : start + rows]), texts[start : start + rows]
            keep = [
                place for place, label in enumerate(given) if is_known(f"image {start + place}", label, form, skipped)
            ]
            yield Values(part[keep]), outputs_of([given[place] for place in keep], form)

    element = "text" if form.classes is not None else "double precision"
    return Source((Column("input", "bytea"), Column("output", element)), len(images), chunks, "an array of images")


def _check_array(images: NDArray[Any], form: Wanted) -> None:
    if images.dtype != np.uint8 or images[0:1].size != int(np.prod(form.shape)) * min(len(images), 1):
        raise InvalidData(f"expected 8-bit images of shape {list(form.shape)}, got {images.dtype} {images.shape[1:]}")


def _flat(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(images).reshape(len(images), -1)


def outputs_of(labels: Sequence[str], form: Wanted) -> Values:
    """Return labels as the column of outputs."""
    if form.classes is None:
        return Values(np.array([float(label) for label in labels]))
    return Values([label.encode() for label in labels])


class Place:
    """A folder below which files are: a table of names from elsewhere must not read other files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = os.path.realpath(folder)
        self._parents: dict[str, str] = {}

    def of(self, name: str) -> Path:
        """Return the file of a name. Raises InvalidData."""
        path = self._path(name.replace("\0", "?"))
        if not path:
            raise InvalidData(f"{name[:80]!r} is no file below {self._folder}")
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):  # a name leads wherever its folder does, and this one further
                path = os.path.realpath(path)
                mode = os.stat(path).st_mode
        except (OSError, ValueError):
            mode = 0
        if not self._has(path):
            raise InvalidData(f"{name[:80]!r} is no file below {self._folder}")
        if not stat.S_ISREG(mode):
            raise InvalidData(f"{name[:80]}: there is no such file in {self._folder}")
        return Path(path)

    def content(self, name: str, most_bytes: int) -> bytes:
        """Return the whole file of a name; nothing of one that is larger, a link, no file, or not to be read."""
        try:
            file = os.open(self._path(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            return b""
        try:
            content = os.read(file, most_bytes + 1)
        except OSError:
            return b""
        finally:
            os.close(file)
        return content if len(content) <= most_bytes else b""

    def _path(self, name: str) -> str:
        """Return the path of a name, whose folder may be reached by links; empty if it leads out of the folder."""
        begin = name.rfind("/") + 1
        parent, base = name[:begin], name[begin:]
        if parent not in self._parents:
            folder = os.path.realpath(os.path.join(self._root, parent))
            self._parents[parent] = os.path.join(folder, "") if self._has(os.path.join(folder, "")) else ""
        folder = self._parents[parent]
        return folder + base if folder and base not in ("", ".", "..") else ""

    def _has(self, path: str) -> bool:
        return path.startswith(os.path.join(self._root, ""))


def _check_size(path: Path, size: tuple[int, int], form: Wanted) -> None:
    height, width, _ = form.shape
    if size != (width, height) and not form.is_resized:
        raise InvalidData(f"{path.name}: expected {height} by {width} pixels, got {size[1]} by {size[0]}")


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]
