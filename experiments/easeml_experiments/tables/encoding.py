"""The rows of a table as a competent user hands them to libraries outside, in a few lines each.

Times become calendar parts. Trees get categories as codes and each free text as 30 directions of its TF-IDF; the linear
rival gets TF-IDF itself beside one-hot categories and standardised numbers.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from easeml_experiments.tables.table import Frame, Table

MAX_NATIVE_CATEGORIES = 255  # HistGradientBoosting's limit; codes beyond are taken as numbers
TEXT_DIRECTIONS = 30
MAX_TOKENS = 50_000
PARTS = ("year", "month", "day", "day_of_week", "hour")


def plain(table: Table, frame: Frame) -> Frame:
    """Return the inputs with times as calendar parts, booleans and integers as numbers, texts never missing."""
    inputs = frame[table.inputs(frame)].copy()
    for name in inputs.columns:
        if inputs[name].dtype.kind == "M":
            times = inputs.pop(name)
            inputs[name] = times.astype("int64") / 1e6
            for part in PARTS:
                inputs[f"{name}_{part}"] = getattr(times.dt, part)
        elif inputs[name].dtype.kind in "bui":
            inputs[name] = inputs[name].astype(float)
    for name in table.texts:
        inputs[name] = inputs[name].fillna("").astype(str)
    return inputs


def categories_of(table: Table, inputs: Frame) -> list[str]:
    """Return the names of columns that hold categories."""
    return [name for name in inputs.columns if inputs[name].dtype.kind not in "fiub" and name not in table.texts]


def numbers_of(inputs: Frame) -> list[str]:
    """Return the names of columns that hold numbers."""
    return [name for name in inputs.columns if inputs[name].dtype.kind in "fiub"]


def for_trees(table: Table, fitted: Frame, others: list[Frame], seed: int) -> tuple[Frame, list[Frame]]:
    """Return inputs of the rows to fit, and of others, as numbers: codes of categories, directions of texts."""
    from sklearn.compose import ColumnTransformer
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OrdinalEncoder

    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    parts: list[tuple[str, Any, Any]] = [
        ("numbers", "passthrough", numbers_of(fitted)),
        ("codes", codes, categories_of(table, fitted)),
    ]
    for name in table.texts:
        tokens = TfidfVectorizer(max_features=MAX_TOKENS, token_pattern=r"(?u)\b\w+\b")
        parts.append((name, make_pipeline(tokens, TruncatedSVD(TEXT_DIRECTIONS, random_state=seed)), name))
    encoder = ColumnTransformer(parts, sparse_threshold=0).fit(fitted)
    names = encoder.get_feature_names_out()
    made = [pd.DataFrame(encoder.transform(rows), columns=names) for rows in (fitted, *others)]
    return made[0], made[1:]


def with_native_categories(table: Table, fitted: Frame, others: list[Frame]) -> tuple[Frame, list[Frame]]:
    """Return the frames of `for_trees` with few codes as categories, which boosting splits by sets."""
    native = [
        name for name in fitted.columns if name.startswith("codes__") and fitted[name].nunique() < MAX_NATIVE_CATEGORIES
    ]
    kinds = {name: pd.CategoricalDtype(sorted(set(fitted[name].dropna()) | {-1.0})) for name in native}
    return fitted.astype(kinds), [other.astype(kinds) for other in others]


def for_lines(table: Table, fitted: Frame) -> Any:
    """Return a transformer to what a linear rival takes: TF-IDF, one-hot categories, standardised numbers."""
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    parts: list[tuple[str, Any, Any]] = [
        ("numbers", numbers, numbers_of(fitted)),
        ("codes", OneHotEncoder(handle_unknown="ignore", min_frequency=2), categories_of(table, fitted)),
    ]
    parts += [
        (name, TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b"), name)
        for name in table.texts
    ]
    return ColumnTransformer([part for part in parts if len(part[2])])
