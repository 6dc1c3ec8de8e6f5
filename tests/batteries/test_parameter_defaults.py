"""Defaults of the parameters of every method: to change one is a decision, and changes the table beside this test."""

import json

from gramplane.pipeline import METHODS
from tests.support.places import ROOT

TABLE = ROOT / "tests" / "fixtures" / "parameter_defaults.json"
"""By method and parameter; every parameter has a default."""


def test_defaults_are_those_of_the_table():
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    told = {method: {name: field.default for name, field in info.config.model_fields.items()} for method, info in METHODS.items()}
    assert set(told) == set(table)
    changed = {
        method: sorted(name for name in told[method] if repr(told[method][name]) != repr(table[method].get(name))) for method in told
    }
    assert not any(changed.values()), f"a changed default is a line in CHANGELOG.md and another in {TABLE.name}: {changed}"
    assert {method: set(names) for method, names in told.items()} == {method: set(names) for method, names in table.items()}
