"""Tri-class support vector machine."""

from ...records.extra_input import ExtraInput

HELP = "Unlabelled rows, a block store ingested --like the training data"
EXTRA_INPUTS = (ExtraInput("unlabelled", "a store of rows without a label", "store", HELP),)
