"""Every estimator shows its progress when it is asked to, and hands every event to a single callable."""

import runpy
from pathlib import Path

import pytest

import gramplane
from gramplane.pipeline import METHODS
from tests.support.places import ROOT

FIRST_RUN = runpy.run_path(str(Path(ROOT) / "benchmarks" / "first_run.py"))
FITS = FIRST_RUN["FITS"]


def test_the_benchmark_of_first_fits_knows_every_method():
    assert {name.partition(",")[0] for name in FITS} == set(METHODS), "FITS in benchmarks/first_run.py has every method"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_every_estimator_shows_its_progress(name, capfd):
    seen, fit = [], FITS[name]
    there = {"seen": seen, **{one: getattr(gramplane, one) for one in [fit.partition("(")[0]]}}
    exec(FIRST_RUN["_DATA"] + fit.replace("()", "(verbose=1, callbacks=seen.append)", 1), there)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    rounds = [event for event in seen if event["event"] == "iteration"]
    assert out == "" and len(rounds) > 0
    assert sum(f"{fit.partition('(')[0]}: round {rounds[-1]['iteration']}" in line for line in lines) == 1
    assert all(line.isprintable() for line in lines)
    assert not any(word in line.split() for line in lines for word in ("nan", "inf")), lines
