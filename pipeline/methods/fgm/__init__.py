"""Feature Generating Machine."""

from ...records.extra_input import ExtraInput

HELP = "Covariates, without a penalty: a table with a row for each of the store's (csv, npy, npz, parquet)"
EXTRA_INPUTS = (ExtraInput("covariates", "covariates of the rows", "columns", HELP),)
