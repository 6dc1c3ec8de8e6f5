"""What every method of the registry must do: all checks of the battery that users run, on every case."""

import pytest

from gramplane.kernels.jit import one_thread
from gramplane.pipeline import METHODS
from gramplane.pipeline.registry import MethodInfo
from gramplane.workflows import battery
from gramplane.workflows.battery import CHECKS, Bench
from tests.support.methods import CASES


@pytest.fixture(scope="module", params=sorted(CASES))
def prepared(request, tmp_path_factory):
    """A case with its store and one undisturbed run."""
    case = CASES[request.param]
    return case, battery.prepare_case(case, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_method(check, prepared, tmp_path, capsys):
    with one_thread():
        check(Bench(*prepared, tmp_path))


def test_every_method_has_a_case():
    assert {case.method for case in CASES.values()} == set(METHODS)
    assert all(isinstance(info, MethodInfo) and info.name == name for name, info in METHODS.items())
