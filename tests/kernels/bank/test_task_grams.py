"""Sums by pairs of tasks: the numbers of the whole matrices, the same bits wherever the entries lie."""

import numpy as np
import pytest

from gramplane.cluster import MemorySink, open_executor
from gramplane.kernels.bank.bank import PackedBank
from gramplane.kernels.grams.spec import as_specs
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams.grams import Grams
from gramplane.pipeline.grams.settings import GramSettings
from gramplane.storage import RunStore, block_cache
from gramplane.storage.ingest import ingest

N, T = 300, 7
KERNELS = ["rbf(gamma=0.5) trace", "rbf(gamma=2)[0,2] trace", "poly(degree=2) multiplicative", "linear", "linear cosine", "linear centre"]


def tasks(kind):
    rng = np.random.default_rng(3)
    codes = rng.integers(0, T, N)
    return np.sort(codes) if kind == "together" else codes


def symmetric(k, rng):
    half = rng.standard_normal((k, T, T))
    return np.tril(found := half @ half.transpose(0, 2, 1)) + np.tril(found, -1).transpose(0, 2, 1)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    rng = np.random.default_rng(0)
    return ingest((rng.standard_normal((N, 5)), np.zeros(N)), tmp_path_factory.mktemp("grams") / "data")


def opened(policy, store, tmp_path, executor, kernels=KERNELS):
    resources, specs = Resources(executor), as_specs(kernels, 5)
    settings = GramSettings.of(store, resources, specs, policy, str(tmp_path / "grams") if policy == "store" else None)
    return Grams(store, specs, settings, resources, centre=True)


@pytest.mark.parametrize("kind", ["together", "mixed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_bank_gives_the_numbers_of_the_whole_matrices(kind, dtype):
    rng = np.random.default_rng(1)
    raw = rng.standard_normal((6, N, N)).astype(dtype).astype(float)
    K = raw @ raw.transpose(0, 2, 1) / N
    K = K.astype(dtype).astype(float)
    bank = PackedBank.from_dense(K, dtype)
    bank.scale[:] = rng.uniform(0.5, 2.0, 6)
    K *= bank.scale[:, None, None]
    codes, beta, weights = tasks(kind), rng.standard_normal(N) * (rng.random(N) < 0.7), symmetric(6, rng)
    weights[2] = 0.0
    spread = beta[:, None] * (codes[:, None] == np.arange(T))
    forms = bank.task_forms(beta, codes, T)
    np.testing.assert_allclose(forms, np.einsum("is,kil,lt->kst", spread, K, spread), atol=1e-10 * np.abs(forms).max())
    np.testing.assert_array_equal(forms, forms.transpose(0, 2, 1))
    np.testing.assert_allclose(forms.sum(axis=(1, 2)), bank.forms(beta), rtol=1e-9)
    found = bank.combine_tasks(weights, codes)
    expected = np.einsum("kil,kil->il", weights[:, codes][:, :, codes], K)
    np.testing.assert_allclose(found, expected, atol=(1e-6 if dtype == np.float32 else 1e-13) * np.abs(expected).max())
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("kind", ["together", "mixed"])
def test_every_policy_gives_the_same_bits(store, tmp_path, kind):
    rng, codes = np.random.default_rng(2), tasks(kind)
    beta, weights = rng.standard_normal(N) * (rng.random(N) < 0.7), symmetric(len(KERNELS), rng)
    weights[1] = 0.0
    found = {}
    with open_executor(None) as executor:
        for policy in ("memory", "store", "recompute"):
            block_cache().clear()
            grams = opened(policy, store, tmp_path, executor)
            found[policy] = grams.task_forms(beta, codes), grams.combine_tasks(weights, codes).array.copy()
    for policy in ("store", "recompute"):
        assert all(a.tobytes() == b.tobytes() for a, b in zip(found["memory"], found[policy], strict=True)), policy
    forms, matrix = found["memory"]
    np.testing.assert_array_equal(matrix, matrix.T)
    same = np.repeat(np.array([0.0, 0.0, 0.5, 0.0, 1.0, 2.0])[:, None, None], T, axis=1).repeat(T, axis=2)
    with open_executor(None) as executor:
        grams = opened("memory", store, tmp_path, executor)
        np.testing.assert_array_equal(grams.combine_tasks(same, codes).array.copy(), grams.combine(same[:, 0, 0]).array)
        np.testing.assert_allclose(forms.sum(axis=(1, 2)), grams.forms(beta), rtol=1e-9)


def test_what_does_not_fit_is_refused(store, tmp_path):
    bank = PackedBank.from_dense(np.eye(4)[None])
    with pytest.raises(ValueError, match=r"codes: shape \(4,\), must be \(4,\), with task numbers from 0 to 1"):
        bank.task_forms(np.ones(4), [0, 1, 2, 0], 2)
    with pytest.raises(ValueError, match="symmetric in the tasks"):
        bank.combine_tasks([[[1.0, 2.0], [0.0, 1.0]]], [0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"weights: shape \(2, 2\), must be \(1, T, T\)"):
        bank.combine_tasks(np.eye(2), [0, 0, 1, 1])


@pytest.mark.parametrize("policy", ["store", "recompute"])
@pytest.mark.parametrize("has_run", [True, False])
def test_a_pooled_sum_beyond_the_driver_has_the_entries_of_the_matrix(store, tmp_path, policy, has_run):
    rng, codes = np.random.default_rng(4), tasks("mixed")
    weights = symmetric(len(KERNELS), rng)
    weights[1] = 0.0
    sink = MemorySink()
    with open_executor(None, events=sink) as executor:
        near = opened("memory", store, tmp_path, executor).combine_tasks(weights, codes).array
        grams = opened(policy, store, tmp_path, executor)
        run = RunStore.create(tmp_path / "run", {}) if has_run else None
        grams.resources = Resources(executor, scratch=run, driver_memory=1 << 18)
        assert not grams.holds_sum
        far = grams.combine_tasks(weights, codes)
        wanted, v = np.array([299, 0, 130, 7]), rng.standard_normal(N)
        for rows, columns, values in far.between(wanted[:1], wanted[1:]):
            np.testing.assert_array_equal(values, near[np.ix_(wanted[rows], wanted[columns])])
        np.testing.assert_allclose(far.matvec(v), near.astype(float) @ v, atol=1e-8)
        np.testing.assert_allclose(far.diag(), np.diagonal(near), rtol=1e-5)
        np.testing.assert_array_equal(far.rows(wanted), near[wanted])
        other = grams.combine_tasks(2.0 * weights, codes)
        np.testing.assert_allclose(other.matvec(v), 2.0 * near.astype(float) @ v, rtol=1e-5, atol=1e-4)
    programs = {event["program"] for event in sink.named("start")}
    assert "task-weighted-sum" not in programs and ("gram-sum" in programs) == has_run
    if has_run:
        assert len(list(run.scratch.iterdir())) == 1


def test_forms_of_several_vectors_are_one_pass_and_those_of_each(store, tmp_path):
    rng, codes = np.random.default_rng(5), tasks("mixed")
    betas = rng.standard_normal((3, N))
    for policy, n_passes in (("recompute", 1), ("memory", 0)):
        sink = MemorySink()
        with open_executor(None, events=sink) as executor:
            grams = opened(policy, store, tmp_path, executor)
            several = grams.task_forms(betas, codes, T)
            passes = [event for event in sink.named("start") if event["program"] == "task-forms"]
            assert len(passes) == n_passes and several.shape == (3, len(KERNELS), T, T)
            assert all(one.tobytes() == grams.task_forms(beta, codes, T).tobytes() for one, beta in zip(several, betas, strict=True))
