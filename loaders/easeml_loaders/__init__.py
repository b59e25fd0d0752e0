"""Outside data (files, arrays, images, bundled datasets) into ordinary source tables.

A module per kind of source turns it into a `Source`: columns, and a stream of chunks. `load_table` writes
any source by binary COPY in one transaction. What the tables are then used for is left to
`easeml.create_dataset`; nothing here knows the schema `easeml`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from easeml_loaders.bundled import BUNDLED_NAMES, bundled_source
    from easeml_loaders.csv_files import csv_source
    from easeml_loaders.fashion_mnist import fashion_mnist_source
    from easeml_loaders.idx_files import idx_source
    from easeml_loaders.numpy_files import numpy_source
    from easeml_loaders.source import Column, Source, Values
    from easeml_loaders.tables import IfExists, LoadedTable, column_types, load_table

__all__ = [
    "BUNDLED_NAMES", "Column", "IfExists", "LoadedTable", "Source", "Values", "bundled_source", "column_types",
    "csv_source", "fashion_mnist_source", "idx_source", "load_table", "numpy_source",
]  # fmt: skip
HOMES = {
    "BUNDLED_NAMES": "bundled", "bundled_source": "bundled", "csv_source": "csv_files",
    "fashion_mnist_source": "fashion_mnist", "idx_source": "idx_files", "numpy_source": "numpy_files",
    "Column": "source", "Source": "source", "Values": "source",
    "IfExists": "tables", "LoadedTable": "tables", "column_types": "tables", "load_table": "tables",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Return a word whose module is imported at its first use: numpy and psycopg come with most of them."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
