"""Defect 1: bits and tests that depended on the kernel of BLAS."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.reliability.walks import Skipped, walk
from tests.support.clusters import ROOT
from tests.support.processors import environment, other_coretypes, said

REPORTED = (
    "tests/kernels/svm/test_smo.py::test_one_kink_for_all_and_one_each_are_the_same_bits",
    "tests/pipeline/methods/social_strength/test_social.py::test_users_that_nothing_names_take_no_part_in_the_alignment",
)

METHODS = ("fgm-sparse", "mkl-two", "multitask-mkl-numbers-recompute")


def coretypes() -> tuple[str, ...]:
    """Return the kernels of OpenBLAS to walk under: those that are not this machine's own."""
    if not other_coretypes():
        raise Skipped("BLAS here has one kernel only, or does not read OPENBLAS_CORETYPE")
    return other_coretypes()


def pass_tests(words: list[str], **variables: str) -> None:
    """Run tests in a process with these variables; raise with their last lines where some fail."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, f"{variables}: {done.stdout[-2000:]}"


@walk(1, "the two reported tests pass under another BLAS kernel", quick=False)
def reported_tests(folder: Path) -> None:
    """As reported: OPENBLAS_CORETYPE=Haswell on a processor with AVX-512."""
    pass_tests(list(REPORTED), OPENBLAS_CORETYPE=coretypes()[0])


@walk(1, "fits have the same bits in one process and on two workers under another BLAS kernel", quick=False)
def layouts_agree(folder: Path) -> None:
    """Several methods in one process and on two workers, all of them with the other kernel."""
    code = "import sys; from tests.reliability.defect_01_blas_kernels import compare; compare(sys.argv[1])"
    assert said(code, str(folder), OPENBLAS_CORETYPE=coretypes()[0]).strip() == f"{len(METHODS)} models, equal on all layouts"


def compare(place: str) -> None:
    """Fit every method on both layouts and say how many models are equal (in a process of its own)."""
    from gramplane.pipeline import run_method
    from tests.support.clusters import CommandCluster
    from tests.support.methods import CASES

    folder, equal = Path(place), 0
    with CommandCluster(folder, workers=2, memory_limit="2GiB") as cluster:
        for name in METHODS:
            case, data = CASES[name], folder / f"{name}.zarr"
            case.data(data)
            models = []
            for cut, where in (("near", "sync"), ("far", cluster.config)):
                run = folder / f"{name}-{cut}"
                run_method(case.method, case.params, data=str(data), run=str(run), cluster=where, extra=case.extra)
                models.append({path.relative_to(run): path.read_bytes() for path in sorted((run / "model").rglob("*")) if path.is_file()})
            equal += bool(models[0]) and models[0] == models[1]
    sys.stdout.write(f"{equal} models, equal on all layouts\n")


@walk(1, "tests of kernels pass under every BLAS kernel and for the generic processor", quick=False)
def kernels_under_every_kernel(folder: Path) -> None:
    """The generic processor compiles everything anew, into a folder of its own."""
    tests = ["tests/kernels"]
    pass_tests(tests, NUMBA_CPU_NAME="generic", NUMBA_CACHE_DIR=str(folder / "compiled"))
    for coretype in coretypes():
        pass_tests(tests, OPENBLAS_CORETYPE=coretype)
