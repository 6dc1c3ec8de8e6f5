"""How far it is from an estimator's ``fit`` to the first arithmetic: files on the stack, files entered, calls."""

import os
import sys
from types import FrameType
from typing import NamedTuple

import numpy as np
import pytest

from gramplane import FGMClassifier, MKLClassifier, pipeline

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(pipeline.__file__)))
X = np.random.default_rng(0).normal(size=(200, 30))
Y = np.where(X[:, 0] > 0, 1, -1)


class Shape(NamedTuple):
    stack: int
    entered: int
    calls: int


def shape_of(model: FGMClassifier | MKLClassifier, rows: np.ndarray, arithmetic: str) -> Shape:
    """Fit once, so that what is only imported is not entered, and again until the function ``arithmetic`` is called."""
    model.fit(rows, Y)
    entered, calls, found = set[str](), 0, list[Shape]()

    def enter(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        path = frame.f_code.co_filename
        if event != "call" or found or not path.startswith(FOLDER + os.sep):
            return
        entered.add(path)
        calls += 1
        if f"{os.path.relpath(path, FOLDER)}:{frame.f_code.co_name}" == arithmetic:
            stack, at = set[str](), frame
            while at is not None:
                stack |= {at.f_code.co_filename} if at.f_code.co_filename.startswith(FOLDER + os.sep) else set()
                at = at.f_back
            found.append(Shape(len(stack), len(entered), calls))

    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        model.fit(rows, Y)
    finally:
        sys.setprofile(before)
    return found[0]


CASES = {
    # Goals: 7 files on the stack, 26 entered, 245 calls; of 117 kernels 30 entered, 1,200 calls.
    "the first score of FGM": (FGMClassifier(), X, "kernels/features/rows_at_hand.py:correlations", Shape(9, 40, 300)),
    "the first of 117 Gram matrices": (MKLClassifier(), X[:, :8], "kernels/grams/strips.py:packed_grams", Shape(11, 52, 720)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fit_is_not_far_from_its_arithmetic(name: str):
    model, rows, arithmetic, limit = CASES[name]
    shape = shape_of(model, rows, arithmetic)
    assert all(figure <= most for figure, most in zip(shape, limit, strict=True)), f"{shape} is beyond {limit}"
