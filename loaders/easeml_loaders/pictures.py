"""Folders of pictures with a table of labels, as rows of 8-bit tensors; what cannot be read is named.

Pillow reads them. Only the formats below are tried, and a header that promises more pixels than a tensor may hold is
refused before any of them is unpacked.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from easeml_loaders.files import reading
from easeml_loaders.source import CHUNK_BYTES, Chunk, Column, Source, Values
from easeml_plpy.errors import InvalidArgument, InvalidData

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
MOST_PIXELS = 1 << 26
MOST_LABELS = 100_000_000


@dataclass(frozen=True)
class Wanted:
    """What each picture has to become: (height, width, channels), and the labels that a task knows (None: numbers)."""

    shape: tuple[int, int, int]
    classes: frozenset[str] | None
    is_resized: bool = False


@dataclass
class Skipped:
    """How many examples could not be read, and the first few problems; with `refuses` the first one is an error."""

    refuses: bool
    n_examples: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, error: InvalidData) -> None:
        """Count an example that could not be read. Raises InvalidData."""
        if self.refuses:
            raise InvalidData(
                str(error), hint="Nothing was fed. With --on-error skip such examples are left out."
            ) from error
        self.n_examples += 1
        if len(self.problems) < 20:
            self.problems.append(str(error))


def read_labels(path: Path) -> list[tuple[str, str]]:
    """Return (file, label) of each line of a CSV file whose header names both columns. Raises InvalidData."""
    with reading(path), path.open(encoding="utf-8-sig", newline="") as lines:
        try:
            found = csv.DictReader(lines)
            names = found.fieldnames or []
            if not {"file", "label"} <= set(names):
                raise InvalidData(
                    f"{path}: expected a header with the columns file and label, got {', '.join(names) or 'nothing'}"
                )
            rows = [(row["file"] or "", row["label"] or "") for row in islice(found, MOST_LABELS)]
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidData(f"{path}: expected CSV in UTF-8: {error}") from error
    if not rows:
        raise InvalidData(f"{path}: no labels below the header")
    return rows


def picture_size(folder: Path, labels: Sequence[tuple[str, str]]) -> tuple[int, int, int]:
    """Return the shape of the first picture that can be read. Raises InvalidData."""
    from PIL import Image

    problem: InvalidData | None = None
    for name, _ in labels[:100]:
        try:
            path = _inside(folder, name)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with Image.open(path, formats=FORMATS) as picture:
                    return picture.height, picture.width, 1 if picture.mode in ("1", "L", "I;16") else 3
        except InvalidData as error:
            problem = error
        except Exception as error:  # noqa: BLE001  Pillow raises whatever a broken file leads to
            problem = InvalidData(f"{name}: cannot be read as a picture: {_reason(error)}")
    raise problem or InvalidData(f"{folder}: no pictures")


def read_picture(path: Path, wanted: Wanted) -> bytes:
    """Return the pixels of a picture, row by row. Raises InvalidData for a broken one, and for another size."""
    from PIL import Image

    height, width, channels = wanted.shape
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Pillow only warns of files that unpack to very many pixels
            with Image.open(path, formats=FORMATS) as picture:
                _check_size(path, picture.size, wanted)
                converted = picture.convert(MODES[channels])
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
    found = io.BytesIO()
    Image.frombytes(MODES[channels], (width, height), np.ascontiguousarray(pixels).tobytes()).save(found, "PNG")
    return found.getvalue()


def picture_source(folder: Path, labels: Sequence[tuple[str, str]], wanted: Wanted, skipped: Skipped) -> Source:
    """Return the pictures with their labels as columns input and output."""
    if wanted.shape[2] not in MODES:
        raise InvalidArgument(
            f"pictures have {', '.join(map(str, MODES))} channels, and the task takes {wanted.shape[2]}"
        )
    element = "text" if wanted.classes is not None else "double precision"
    columns = (Column("input", "bytea"), Column("output", element))
    return Source(columns, len(labels), lambda: _chunks(folder, labels, wanted, skipped), f"pictures in {folder}")


def array_source(images: NDArray[np.uint8], labels: Sequence[str], wanted: Wanted, skipped: Skipped) -> Source:
    """Return pictures of one array (n, height, width, channels) with their labels as columns input and output."""
    if images.dtype != np.uint8 or images[0:1].size != int(np.prod(wanted.shape)) * min(len(images), 1):
        raise InvalidData(f"expected 8-bit images of shape {list(wanted.shape)}, got {images.dtype} {images.shape[1:]}")
    if len(images) != len(labels):
        raise InvalidData(f"{len(images)} images have {len(labels)} labels")
    element = "text" if wanted.classes is not None else "double precision"
    columns = (Column("input", "bytea"), Column("output", element))
    rows = max(1, CHUNK_BYTES // int(np.prod(wanted.shape)))

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(images), rows):
            part = np.ascontiguousarray(images[start : start + rows]).reshape(-1, int(np.prod(wanted.shape)))
            given = labels[start : start + rows]
            keep = [
                place
                for place, label in enumerate(given)
                if _is_known(f"image {start + place}", label, wanted, skipped)
            ]
            yield Values(part[keep]), _outputs([given[place] for place in keep], wanted)

    return Source(columns, len(images), chunks, "an array of images")


def _chunks(folder: Path, labels: Sequence[tuple[str, str]], wanted: Wanted, skipped: Skipped) -> Iterator[Chunk]:
    rows = max(1, CHUNK_BYTES // int(np.prod(wanted.shape)))
    for start in range(0, len(labels), rows):
        read = [_example(folder, name, label, wanted, skipped) for name, label in labels[start : start + rows]]
        kept = [each for each in read if each is not None]
        if kept:
            yield Values([pixels for pixels, _ in kept]), _outputs([label for _, label in kept], wanted)


def _example(folder: Path, name: str, label: str, wanted: Wanted, skipped: Skipped) -> tuple[bytes, str] | None:
    try:
        pixels = read_picture(_inside(folder, name), wanted)
    except InvalidData as error:
        skipped.add(error)
        return None
    return (pixels, label) if _is_known(name, label, wanted, skipped) else None


def _is_known(name: str, label: str, wanted: Wanted, skipped: Skipped) -> bool:
    if wanted.classes is None:
        try:
            if np.isfinite(float(label)):
                return True
        except ValueError:
            pass
        skipped.add(InvalidData(f"{name}: expected a finite number as label, got {label[:40]!r}"))
        return False
    if label in wanted.classes:
        return True
    skipped.add(InvalidData(f"{name}: label {label[:40]!r} is no class of the task"))
    return False


def _outputs(labels: Sequence[str], wanted: Wanted) -> Values:
    if wanted.classes is None:
        return Values(np.array([float(label) for label in labels]))
    return Values([label.encode() for label in labels])


def _inside(folder: Path, name: str) -> Path:
    """Return the file of a name below the folder: a table of labels from elsewhere must not read other files."""
    path = (folder / name).resolve()
    if not name or not path.is_relative_to(folder.resolve()):
        raise InvalidData(f"{name[:80]!r} is no file below {folder}")
    if not path.is_file():
        raise InvalidData(f"{name[:80]}: there is no such file in {folder}")
    return path


def _check_size(path: Path, size: tuple[int, int], wanted: Wanted) -> None:
    height, width, _ = wanted.shape
    if size[0] * size[1] > MOST_PIXELS:
        raise InvalidData(f"{path.name}: {size[1]} by {size[0]} pixels are more than {MOST_PIXELS}")
    if size != (width, height) and not wanted.is_resized:
        raise InvalidData(f"{path.name}: expected {height} by {width} pixels, got {size[1]} by {size[0]}")


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def classes_of(labels: Sequence[tuple[str, str]]) -> list[str]:
    """Return the labels that occur, in order."""
    return sorted({label for _, label in labels if label})
