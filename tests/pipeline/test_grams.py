"""Gram matrices in memory, in a store and computed in passes: the same bits, and those of the whole matrices."""

from types import SimpleNamespace

import numpy as np
import pytest

from gramplane.cluster import MemorySink, open_executor
from gramplane.kernels.grams.products import ProductSpec
from gramplane.kernels.grams.spec import as_specs
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams import grams as module
from gramplane.pipeline.grams.grams import Grams
from gramplane.pipeline.grams.pair_passes import pass_groups
from gramplane.pipeline.grams.plans import GramPasses
from gramplane.pipeline.grams.settings import GramSettings
from gramplane.pipeline.grams.sources import block_rows, pairs
from gramplane.pipeline.passes.blocks import byte_groups
from gramplane.storage import MemoryBlocks, block_cache
from gramplane.storage.ingest import ingest
from tests.support.oracles import gram as oracle

KERNELS = ["rbf(gamma=0.5) trace", "rbf(gamma=2)[0,2] trace", "poly(degree=2) multiplicative", "linear", "linear cosine"]
BY_DIAGONAL = ["rbf(gamma=0.5) trace", "rbf(gamma=2)[0,2] unit_trace", "linear", "poly(degree=2)[0,2] cosine", "linear cosine"]
"""What their normalisation needs stands in the diagonals: a bank of them is filled in place."""
CENTRED = ["rbf(gamma=0.5) trace centre", "linear unit_trace centre", "poly(degree=2) cosine centre"]
N = 300


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, 5)), np.where(rng.random(N) < 0.5, -1.0, 1.0)


@pytest.fixture(scope="module")
def store(data, tmp_path_factory):
    return ingest(data, tmp_path_factory.mktemp("grams") / "data")


def opened(policy, store, tmp_path, kernels, executor, **options):
    resources, specs = Resources(executor), as_specs(kernels, 5)
    settings = GramSettings.of(store, resources, specs, policy, str(tmp_path / "grams") if policy == "store" else None)
    return Grams(store, specs, settings, resources, **options)


def whole(kernels, X):
    return np.stack([oracle.normalized(spec, oracle.gram(spec, X)) for spec in as_specs(kernels, 5)])


def entries(gram, new, old):
    """The rows of new variables among all, from whichever order of each pair came."""
    found = np.full((len(new) + len(old),) * 2, np.nan, np.float32)
    for rows, columns, values in gram.between(new, old):
        found[np.ix_(rows, columns)] = values
        found[np.ix_(columns, rows)] = values.T
    return found[: len(new)]


@pytest.mark.parametrize(("kernels", "centre"), [(KERNELS, False), (BY_DIAGONAL, False), (CENTRED, True)])
def test_every_policy_gives_the_bits_of_the_others_and_the_numbers_of_the_whole(data, store, tmp_path, kernels, centre):
    X, _ = data
    rng = np.random.default_rng(1)
    vectors, theta = rng.standard_normal((N, 3)) * (rng.random((N, 1)) < 0.6), rng.random(len(kernels))
    theta[1] = 0.0
    found = {}
    with open_executor(None) as executor:
        for policy in ("memory", "store", "recompute"):
            block_cache().clear()
            grams = opened(policy, store, tmp_path, kernels, executor, centre=centre)
            found[policy] = (grams.forms(vectors), grams.forms(vectors[:, 0]), grams.combine(theta).array.copy(), grams.diagonals())
    for policy in ("store", "recompute"):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found["memory"], found[policy], strict=True)), policy
    K = whole(kernels, X)
    forms, one, matrix, diagonals = found["memory"]
    np.testing.assert_allclose(forms, np.einsum("nm,knp,pm->km", vectors, K, vectors), rtol=2e-6, atol=1e-6 * np.abs(forms).max())
    np.testing.assert_array_equal(one, forms[:, 0])
    np.testing.assert_allclose(matrix, np.einsum("k,knp->np", theta, K), atol=3e-6 * np.abs(matrix).max())
    np.testing.assert_allclose(diagonals, np.diagonal(K, axis1=1, axis2=2), atol=1e-6 * np.abs(diagonals).max())


def test_kernels_that_join_are_filled_behind_those_that_are_there(data, store, tmp_path):
    theta, vectors = np.random.default_rng(3).random(len(KERNELS)), np.random.default_rng(4).standard_normal((N, 2))
    products = [ProductSpec.of([spec]) for spec in as_specs(KERNELS[:2], 5)] + [ProductSpec.of(list(as_specs(KERNELS[1:3], 5)))]
    with open_executor(None) as executor:
        resources = Resources(executor)
        before = Grams(store, products[:2], None, resources)
        bank = before._bank
        after, anew = Grams(store, products, None, resources, known=before), Grams(store, products, None, resources)
        assert before._bank is None and not hasattr(bank, "values"), "the memory was not taken over"
        assert after.forms(vectors).tobytes() == anew.forms(vectors).tobytes()
        assert after.combine(theta[:3]).array.tobytes() == anew.combine(theta[:3]).array.tobytes()
        assert after.diagonals().tobytes() == anew.diagonals().tobytes()
        # Of other kernels, and where entries do not stay in memory, nothing is taken over, but the old ones go.
        for specs, policy in ((products[1:], "memory"), (products[::-1], "memory"), (products, "recompute")):
            known = Grams(store, products[:2], None, resources)
            found = Grams(store, specs, GramSettings.of(store, resources, specs, policy), resources, known=known)
            assert known._bank is None
            assert found.forms(vectors).tobytes() == Grams(store, specs, None, resources).forms(vectors).tobytes()


def test_a_sum_beyond_the_drivers_memory_answers_by_passes(data, store, tmp_path):
    theta, wanted = np.array([1.0, 0.0, 0.3, 0.2, 0.5]), np.array([250, 3, 131, 17, 299])
    v = np.random.default_rng(2).standard_normal(N)
    with open_executor(None) as executor:
        whole = opened("memory", store, tmp_path, KERNELS, executor).combine(theta).array.astype(float)
        for policy in ("store", "recompute"):
            grams = opened(policy, store, tmp_path, KERNELS, executor)
            grams.resources = Resources(executor, driver_memory=1 << 18)
            far = grams.combine(theta)
            assert not hasattr(far, "array") and far.n == N
            np.testing.assert_array_equal(entries(far, wanted[:2], wanted[2:]), whole.astype(np.float32)[np.ix_(wanted[:2], wanted)])
            np.testing.assert_allclose(far.matvec(v), whole @ v, atol=1e-9 * np.abs(whole @ v).max())
            np.testing.assert_allclose(far.diag(), np.diagonal(whole), rtol=1e-6)
            np.testing.assert_allclose(far.rows(wanted[:2]), whole[wanted[:2]], rtol=1e-12)


def test_passes_that_send_blocks_back_are_within_their_plan(store, tmp_path):
    sink = MemorySink()
    with open_executor(None, events=sink) as executor:
        grams = [opened(policy, store, tmp_path, KERNELS, executor) for policy in ("memory", "recompute")]
        grams[1].combine(np.ones(5))
        filled, summed = (GramPasses(store, one.specs, one.settings, Resources(executor)) for one in grams)
        planned = {"gram-blocks": filled.load(), "weighted-sum": summed.sum()}
    bounds = {event["program"]: event["memory_bound"] for event in sink.events if event["event"] == "plan"}
    assert {name: bounds[name] for name in planned} == planned


def test_a_store_that_is_there_is_used_again(data, store, tmp_path):
    sink = MemorySink()
    with open_executor(None, events=sink) as executor:
        opened("store", store, tmp_path, KERNELS, executor)
        built = sum(event.get("program") == "gram-build" for event in sink.events if event["event"] == "start")
        opened("store", store, tmp_path, KERNELS[:2], executor)
        opened("store", store, tmp_path, KERNELS, executor)
        again = sum(event.get("program") == "gram-build" for event in sink.events if event["event"] == "start")
        more = opened("store", store, tmp_path, [*KERNELS, "rbf(gamma=8)"], executor)
    assert (built, again) == (1, 1) and more.k == 6


@pytest.mark.parametrize(("kernels", "program"), [(KERNELS, "gram-blocks"), (BY_DIAGONAL, "gram-bank")])
def test_a_bank_is_filled_in_place_where_diagonals_are_enough(data, tmp_path, kernels, program, monkeypatch):
    sink, found = MemorySink(), []
    # So small tasks that every set of features is one.
    monkeypatch.setattr("gramplane.pipeline.grams.fill.TASK_BYTES", 1)
    with open_executor(None, events=sink) as executor:
        for near in (True, False):
            if not near:
                monkeypatch.setattr(module, "fills_here", lambda data, resources, specs: False)
            found.append(opened("memory", MemoryBlocks(data[0]), tmp_path, kernels, executor))
    started = [event["program"] for event in sink.events if event["event"] == "start"]
    assert set(started) == {program, "gram-blocks"} and (program == "gram-blocks" or started.count("gram-blocks") == 1)
    assert found[0].combine(np.ones(5)).array.tobytes() == found[1].combine(np.ones(5)).array.tobytes()
    assert found[0].diagonals().tobytes() == found[1].diagonals().tobytes()


def test_blocks_follow_from_the_data_alone():
    assert block_rows(100, 5) == 128 and block_rows(30_000, 5) == 896 and block_rows(2000, 200) == 128
    assert all(block_rows(n, k) % 128 == 0 for n in (1, 129, 5000, 10**6) for k in (1, 7, 1000))
    covered = np.zeros((300, 300), int)
    for rows, cols in pairs(300, 128):
        covered[slice(*rows), slice(*cols)] += 1
        covered[slice(*cols), slice(*rows)] += rows != cols
    assert np.all(covered == 1)


def test_a_task_of_a_pass_takes_pairs_up_to_its_bytes_and_no_more():
    sizes = lambda *pairs: [SimpleNamespace(nbytes=size) for size in pairs]  # noqa: E731
    cut = lambda tasks: [[pair.nbytes for pair in task] for task in tasks]  # noqa: E731
    assert cut(byte_groups(sizes(4, 4, 4, 3, 2, 9, 1), 8)) == [[4, 4], [4, 3], [2], [9], [1]]
    half = 8 << 20
    assert cut(pass_groups(sizes(half, half, half, half - 1, 1, 1))) == [[half, half], [half, half - 1, 1], [1]]


def test_a_store_policy_needs_a_path(data, store):
    with open_executor(None) as executor, pytest.raises(ValueError, match="needs a path"):
        GramSettings.of(store, Resources(executor), as_specs(["linear"], 5), "store")


@pytest.mark.parametrize(("kernels", "centre"), [(KERNELS, False), (CENTRED, True)])
def test_some_kernels_and_products_have_the_same_bits_everywhere(data, store, tmp_path, kernels, centre):
    rng, chosen = np.random.default_rng(3), np.array([0, 2])
    vectors = rng.standard_normal((N, 2)) * (rng.random((N, 1)) < 0.6)
    wanted = vectors != 0
    found = {}
    with open_executor(None) as executor:
        for policy in ("memory", "store", "recompute"):
            grams = opened(policy, store, tmp_path, kernels, executor, centre=centre)
            found[policy] = (grams.forms(vectors, chosen), grams.products(vectors, wanted, chosen), grams.products(vectors, wanted))
            np.testing.assert_array_equal(found[policy][0], grams.forms(vectors)[chosen])
            np.testing.assert_array_equal(found[policy][1], found[policy][2][chosen])
    for policy in ("store", "recompute"):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found["memory"], found[policy], strict=True)), policy
    forms, products, _ = found["memory"]
    expected = np.einsum("knp,pm->kmn", whole(kernels, data[0])[chosen], vectors)
    np.testing.assert_allclose(products, np.where(wanted.T, expected, 0.0), atol=2e-6 * np.abs(expected).max())
    np.testing.assert_allclose(np.einsum("kmn,nm->km", products, vectors), forms, rtol=1e-10)
