"""scikit-learn's checks of an estimator, and those that cannot hold where probabilities are calibrated on folds."""

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

COPIES = "copies carry no data of the fit, from which probability='auto' calibrates: the check asks a copy that was made before"
FOLDS = "folds are drawn over rows: a row of weight two lies in one of them, two rows in two"
VALUES = "predict goes by decision values, not by the greatest calibrated probability"
CALIBRATED = {
    "check_estimators_pickle": COPIES,
    "check_sample_weight_equivalence_on_dense_data": FOLDS,
    "check_sample_weight_equivalence_on_sparse_data": FOLDS,
    "check_classifiers_train": VALUES,
}
"""Checks that may fail where probabilities are calibrated when they are first asked for, each with its reason."""

SEVEN_DIGITS = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "the check asks for seven digits, these fits agree to their tolerance: tests/batteries/test_weights.py",
)

SINGLE = "a class of the check's data has one row, which probabilities cannot be calibrated with"
ON_MATRICES = {
    "check_decision_proba_consistency": "the check hands features to a machine that takes matrices",
    **dict.fromkeys(("check_methods_sample_order_invariance", "check_methods_subset_invariance", "check_dict_unchanged"), SINGLE),
}
"""Checks of classifiers on matrices that fail for what they hand over."""


def run_checks(estimator: Any, expected: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """Return the names of checks by status: ``passed``, ``failed`` with their messages, ``xfail`` of those expected to fail, ``skipped``.

    Those of `CALIBRATED` may fail, unless they are expected to anyway, and must hold without probabilities; they count then.
    """
    expected, may_fail = expected or {}, CALIBRATED if "probability" in estimator.get_params() else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(estimator, expected_failed_checks={**may_fail, **expected}, on_fail=None, on_skip=None)
        again = [row for row in _without_probabilities(estimator) if row[0] not in expected] if may_fail else []
    names = {status: [row["check_name"] for row in found if row["status"] == status] for status in ("passed", "xfail", "skipped")}
    free = {name for name in may_fail if name not in expected}
    failed = [f"{row['check_name']}: {str(row['exception'])[:200]}" for row in found if row["status"] == "failed"]
    return {
        "passed": [*(name for name in names["passed"] if name not in free), *(name for name, error in again if error is None)],
        "failed": [*failed, *(f"{name} without probabilities: {str(error)[:200]}" for name, error in again if error is not None)],
        "xfail": sorted({name for name in names["xfail"] if name not in free}),
        "skipped": names["skipped"],
    }


def _without_probabilities(estimator: Any) -> Iterator[tuple[str, Exception | None]]:
    plain = clone(estimator).set_params(probability=False)
    for one, check in estimator_checks_generator(plain):
        name = getattr(check, "func", check).__name__
        if name in CALIBRATED:
            try:
                check(one)
            except Exception as error:
                yield name, error
            else:
                yield name, None
