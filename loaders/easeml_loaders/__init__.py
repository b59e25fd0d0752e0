"""Outside data (files, arrays, images, bundled datasets) into ordinary source tables.

A module per kind of source turns it into a `Source`: columns, and a stream of chunks. `load_table` writes
any source by binary COPY in one transaction. What the tables are then used for is left to
`easeml.create_dataset`; nothing here knows the schema `easeml`.
"""

from easeml_loaders.bundled import BUNDLED_NAMES, bundled_source
from easeml_loaders.csv_files import csv_source
from easeml_loaders.fashion_mnist import fashion_mnist_source
from easeml_loaders.idx_files import idx_source
from easeml_loaders.numpy_files import numpy_source
from easeml_loaders.source import Column, Source, Values
from easeml_loaders.tables import IfExists, LoadedTable, column_types, load_table

__all__ = [
    "BUNDLED_NAMES",
    "Column",
    "IfExists",
    "LoadedTable",
    "Source",
    "Values",
    "bundled_source",
    "column_types",
    "csv_source",
    "fashion_mnist_source",
    "idx_source",
    "load_table",
    "numpy_source",
]
