"""scikit-learn encoders fitted from the known encoding of a table; scikit-learn is imported on first use."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import Foreign
from .record import ColumnEncoding, TableColumns


def encoder_of(table: TableColumns) -> Foreign:
    """Return the encoder of a table, which is fitted once."""
    known = vars(table)  # (as cached properties do; to the records of tables scikit-learn is unknown)
    if "_encoder" not in known:
        known["_encoder"] = _fitted_encoder(table)
    return known["_encoder"]


def _fitted_encoder(table: TableColumns) -> Foreign:
    """Return a fitted ``Pipeline`` that maps a table of source columns to features. Columns are identified by name, or by position if all
    are numeric.

    Its ``ColumnTransformer`` has one encoder for all names, with their levels as ``categories``, and one transformer for all numbers. A
    second step puts the features in the order of the columns.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    places = range(len(table.sources))
    numbers = [k for k in places if table.sources[k].kind != "nominal"]
    named = [k for k in places if table.sources[k].kind == "nominal" and table.sources[k].features]
    makers = {"numbers": (_encoder_of_numbers, numbers), "levels": (_encoder_of_levels, named)}
    parts = [(part, make(table, [table.sources[k] for k in at]), at) for part, (make, at) in makers.items() if at]
    # An n_jobs of the user's joblib, or containers that they want of their own transformers, do not count here.
    columns = ColumnTransformer(parts, sparse_threshold=float(table.is_sparse), n_jobs=1)
    made = [table.sources[k].features[0] for k in numbers] + [name for k in numbers for name in table.sources[k].features[1:]]
    made_at = {name: k for k, name in enumerate(made + [name for k in named for name in table.sources[k].features])}
    taken = {"order": [made_at[name] for name in table.feature_names]}
    order = FunctionTransformer(take_features, kw_args=taken, feature_names_out=partial(feature_names, table.feature_names))
    return Pipeline([("columns", columns), ("order", order)]).set_output(transform="default").fit(_example(table))


def feature_names(names: Sequence[str], transformer: object, inputs: object) -> Sequence[str]:
    """Return the names of all features; the names that the previous step passes are ignored."""
    return names


def take_features(features: Foreign, order: Sequence[int]) -> Foreign:
    return features[:, order] if sp.issparse(features) else np.take(features, order, axis=1)


def _encoder_of_levels(table: TableColumns, columns: Sequence[ColumnEncoding]) -> Foreign:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder

    is_coded = table.form == "codes"
    # A missing value is a level where rules read it, or a feature says so; else it has zeros in all features, as a level that is not known.
    missing = [[np.nan] if is_coded or column.has_indicator else [] for column in columns]
    categories = [np.array([*column.levels, *gone], dtype=object) for column, gone in zip(columns, missing, strict=True)]
    options: dict[str, Any] = {"categories": categories}
    if is_coded:
        encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, **options)
    else:
        options["feature_name_combiner"] = "{}={}".format
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=table.is_sparse, **options)
    return make_pipeline(FunctionTransformer(nan_for_none, feature_names_out="one-to-one"), encoder) if any(missing) else encoder


def nan_for_none(X: Foreign) -> npt.NDArray[np.object_]:
    """Return texts with NaN in place of None. Arrow and polars represent missing texts by None, but the encoders distinguish None from
    NaN.
    """
    texts = np.array(X, dtype=object)
    texts[texts == None] = np.nan  # noqa: E711
    return texts


def _encoder_of_numbers(_: TableColumns, columns: Sequence[ColumnEncoding]) -> Foreign:
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import FunctionTransformer

    if columns[0].fill is None:  # ("passthrough" hands on a table of Arrow as it is)
        return FunctionTransformer(np.asarray, kw_args={"dtype": np.float64}, feature_names_out="one-to-one")
    return SimpleImputer(strategy="median" if columns[0].missing == "median" else "mean", add_indicator=True)


def _example(table: TableColumns) -> Foreign:
    """Return two example rows. Fitting the encoder to them gives the same fill values and missing-value indicators as fitting it to all
    rows.
    """
    rows = np.array([[column.fill or 0.0] * 2 for column in table.sources])
    rows[[column.has_indicator and column.kind != "nominal" for column in table.sources], 1] = np.nan
    return _input(table, rows)


def _input(table: TableColumns, block: npt.NDArray[np.floating]) -> Foreign:
    """Return source columns ``(n_sources, n)``, with level numbers, as a table of numbers and texts.

    Purely numeric columns stay an array, because any operation on a data frame with 10,000 columns takes 0.3 s.
    """
    if all(column.kind != "nominal" for column in table.sources):
        return np.asarray(block.T, np.float64)
    import pyarrow as pa

    arrays = []
    for column, values in zip(table.sources, block, strict=True):
        if column.kind != "nominal":
            arrays.append(pa.array(np.asarray(values, np.float64)))
            continue
        # No level is an empty text, which stands for those that are not known; what is missing is a value of its own.
        n_levels = len(column.levels)
        codes = np.where(np.isnan(values), n_levels + 1, np.where(values < 0, n_levels, values)).astype(np.int32)
        arrays.append(pa.DictionaryArray.from_arrays(pa.array(codes), pa.array([*column.levels, "", None], pa.string())))
    return pa.table(arrays, names=[column.name for column in table.sources])


def encode(table: TableColumns, block: npt.NDArray[np.floating]) -> npt.NDArray[np.float64] | sp.csr_array:
    """Return rows ``(n, n_features)`` for the source columns ``(n_sources, n)``; if the table is sparse, the result has no stored zeros."""
    if table.is_plain:
        return np.ascontiguousarray(block.T, dtype=np.float64)
    rows = encoder_of(table).transform(_input(table, block))
    if not table.is_sparse:
        return np.ascontiguousarray(rows, dtype=np.float64)
    rows = sp.csr_array(rows)
    rows.sort_indices()
    return rows
