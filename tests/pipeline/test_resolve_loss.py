"""The loss of a fit from its parameter and its target."""

import pytest

from gramplane.pipeline.inputs.labels import resolve_loss

NUMBERS, CLASSES = ("squared",), ("logistic", "hinge")


def test_auto_is_the_first_that_suits_the_target():
    assert resolve_loss("auto", None, NUMBERS, CLASSES) == "squared"
    assert resolve_loss("auto", ("a", "b"), NUMBERS, CLASSES) == "logistic"
    assert resolve_loss("hinge", ("a", "b"), NUMBERS, CLASSES) == "hinge"


def test_what_does_not_suit_is_refused_with_what_does():
    with pytest.raises(ValueError, match="loss='hinge': the target holds real numbers; use 'squared'"):
        resolve_loss("hinge", None, NUMBERS, CLASSES)
    with pytest.raises(ValueError, match="loss='squared': the target holds classes; use 'logistic' or 'hinge'"):
        resolve_loss("squared", ("a", "b"), NUMBERS, CLASSES)
