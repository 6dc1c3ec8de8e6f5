"""What a task that decides rows is said to take, held against what it takes."""

import tracemalloc

import numpy as np
import pytest

from gramplane.pipeline import MKLClassifier, MKLRegressor, TwoLayerMKLClassifier
from gramplane.pipeline.models.kernel import BLOCK_BYTES, ROWS, TILES, DecideMemory, decide_chunk, row_spans
from gramplane.storage import MemoryBlocks

KERNELS = ["linear", *(f"rbf(gamma={g})" for g in (0.1, 0.3, 1, 3))]


def taken(model, ref):
    decide_chunk(ref, model)  # what is compiled and kept between tasks is not a task's
    tracemalloc.start()
    decide_chunk(ref, model)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("width", [3, 2000])
@pytest.mark.parametrize("kind", [MKLClassifier, TwoLayerMKLClassifier])
def test_a_task_takes_what_it_is_said_to(kind, width):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, width)) / np.sqrt(width)
    model = kind(KERNELS, max_iter=2, tol=0.5, scale=None).fit(X, np.where(X[:, 0] > 0, 1, -1)).model_
    memory = DecideMemory(len(model.support_ids), len(model.used), len(model.intercepts))
    ref = row_spans(MemoryBlocks(rng.normal(size=(ROWS, width))), width)[0]
    told, found = memory(ref), taken(model, ref)
    assert found <= told <= 2 * found, (told, found)


def test_pieces_bound_what_many_supports_take():
    ref = row_spans(MemoryBlocks(np.zeros((ROWS, 1))), 1)[0]
    few, many = DecideMemory(100, 2, 1)(ref), DecideMemory(10_000, 20, 3)(ref)
    row = 8 * 10_000 * 25
    assert few < many == 3 * ref.nbytes + 3 * max(BLOCK_BYTES, row) + TILES
    assert DecideMemory(10**6, 20, 3)(ref) >= 3 * 8 * 10**6 * 25, "one row is never cut"


@pytest.mark.parametrize("normalize", ["none", "trace", "cosine", "multiplicative"])
def test_a_machine_without_support_decides_by_its_intercept(normalize):
    X = np.random.default_rng(0).normal(size=(20, 3))
    machine = MKLRegressor(["linear", "rbf(gamma=1)"], normalize=normalize, scale=None).fit(X, np.full(20, 2.5))
    assert len(machine.model_.support_ids) == 0
    np.testing.assert_array_equal(machine.predict(X + 1.0), np.full(20, 2.5))
