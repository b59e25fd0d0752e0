"""A trial with its encoder as one file: a state in the safetensors format, with an additional JSON document in its
header.

The tensors are stored as in the state, so any reader of safetensors finds them. The header's metadata has three texts:
`attributes`, those of the state; `model`, the document; and `sha256`, the digest of both and of the tensors. A file has
exactly one valid form: the reader writes its content again and compares, so that even a meaningless byte cannot be
changed.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from easeml_plpy.server.errors import CorruptCheckpoint, InvalidData, VersionMismatch
from easeml_plpy.server.value_types import JSON
from easeml_plpy.states.checkpoint import Payload

FORMAT = 1
"""Version of the document and of the encoder in it; raised when an older package could misread a file."""
MOST_BYTES = 256 << 20
MOST_DOCUMENT_BYTES = 40 << 20
SUFFIX = ".safetensors"
_LENGTH = struct.Struct("<Q")
_METADATA, _MODEL, _DIGEST = "__metadata__", "model", "sha256"
_HINT = "Export the trial again: easeml export DATASET."


@dataclass(frozen=True)
class ModelDocument:
    """A file's description of its trial: `encoder` in stored form, `metrics` of its best epoch by split (`validation`,
    `test`), by name.
    """

    format: int
    made_by: str
    dataset: str
    architecture: str
    config: Mapping[str, JSON]
    encoder: Mapping[str, Any]
    explanations: Mapping[str, JSON]
    metric: str
    is_higher_better: bool
    best_epoch: int
    metrics: Mapping[str, Mapping[str, JSON]]


@dataclass(frozen=True)
class ModelFile:
    """A document and the state of the trial."""

    document: ModelDocument
    state: bytes

    def to_bytes(self) -> bytes:
        """Return the file. Raises CorruptCheckpoint."""
        header, tensors = _split(self.state)
        _metadata(header).pop(_MODEL, None)
        text = json.dumps(asdict(self.document), sort_keys=True, allow_nan=False, separators=(",", ":"))
        return _written(header, tensors, text)

    @classmethod
    def from_bytes(cls, contents: Payload) -> ModelFile:
        """Read a file. Raises InvalidData, VersionMismatch, CorruptCheckpoint."""
        _check_size(len(contents))
        try:
            header, tensors = _split(bytes(contents))
            metadata = _metadata(header)
            text = metadata.pop(_MODEL)
            metadata.pop(_DIGEST)
            document = json.loads(text, parse_constant=_refuse_constant)
        except (CorruptCheckpoint, KeyError, TypeError, ValueError, RecursionError) as error:
            raise InvalidData(
                "expected a file that easeml export has written, got something else", hint=_HINT
            ) from error
        _check_format(document)
        state = _joined(header, tensors)
        if _written(header, tensors, text) != bytes(contents):
            raise CorruptCheckpoint(
                "the file does not match its digest: it was changed since it was written", hint=_HINT
            )
        return cls(_document(document), state)


def _written(header: dict[str, Any], tensors: bytes, text: str) -> bytes:
    digest = hashlib.sha256(text.encode())
    digest.update(_joined(header, tensors))
    metadata = {**_metadata(header), _MODEL: text, _DIGEST: digest.hexdigest()}
    return _joined({**header, _METADATA: metadata}, tensors)


def _check_size(n_bytes: int) -> None:
    if not n_bytes:
        raise InvalidData("expected a file that easeml export has written, got one of 0 bytes", hint=_HINT)
    if n_bytes > MOST_BYTES:
        raise InvalidData(
            f"expected a file of at most {MOST_BYTES} bytes, got a larger one", hint="Train it here instead."
        )


def _split(state: bytes) -> tuple[dict[str, Any], bytes]:
    """Return header and tensors of a state. Raises CorruptCheckpoint, ValueError."""
    n_header = _LENGTH.unpack_from(state)[0] if len(state) >= _LENGTH.size else 0
    if not 0 < n_header <= min(len(state) - _LENGTH.size, MOST_DOCUMENT_BYTES):
        raise CorruptCheckpoint("state cannot be read: its header is cut or too long")
    end = _LENGTH.size + n_header
    header = json.loads(state[_LENGTH.size : end])
    if not isinstance(header, dict):
        raise CorruptCheckpoint("state cannot be read: its header is no object")
    return header, state[end:]


def _metadata(header: Mapping[str, Any]) -> dict[str, str]:
    """Return the texts of a header. Raises CorruptCheckpoint."""
    metadata = header.get(_METADATA)
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise CorruptCheckpoint("state cannot be read: its metadata are no texts")
    return metadata


def _joined(header: Mapping[str, Any], tensors: bytes) -> bytes:
    """Return a state; the header is filled up with spaces, so that tensors lie at multiples of eight bytes."""
    text = json.dumps(header, separators=(",", ":"), sort_keys=True).encode()
    padded = text.ljust(-(-len(text) // 8) * 8)
    return b"".join((_LENGTH.pack(len(padded)), padded, tensors))


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _check_format(document: object) -> None:
    """Refuse a document of another version before anything else is read in it."""
    file_format = document.get("format") if isinstance(document, dict) else None
    if file_format != FORMAT or isinstance(file_format, bool):
        made_by = str(document.get("made_by"))[:40] if isinstance(document, dict) else "another program"
        raise VersionMismatch(
            f"expected a file of format {FORMAT}, got format {str(file_format)[:20]} of {made_by}",
            hint="Install the version of easeml that wrote it, or export the trial again with this one.",
        )


_TYPES: dict[str, type | tuple[type, ...]] = {
    "format": int,
    "made_by": str,
    "dataset": str,
    "architecture": str,
    "config": dict,
    "encoder": dict,
    "explanations": dict,
    "metric": str,
    "is_higher_better": bool,
    "best_epoch": int,
    "metrics": dict,
}


def _document(entries: Mapping[str, Any]) -> ModelDocument:
    """Return the document. Raises InvalidData if a part is missing or has the wrong type."""
    if entries.keys() != _TYPES.keys():
        raise InvalidData(
            f"expected a document with {', '.join(_TYPES)}, got {', '.join(map(str, entries))[:200]}", hint=_HINT
        )
    for name, kind in _TYPES.items():
        if not isinstance(entries[name], kind):
            raise InvalidData(f"document: {name} is of type {type(entries[name]).__name__}", hint=_HINT)
    if not all(isinstance(values, dict) for values in entries["metrics"].values()):
        raise InvalidData("document: metrics are no objects", hint=_HINT)
    return ModelDocument(**entries)
