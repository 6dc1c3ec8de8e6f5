"""Chosen entries of many Gram matrices: the same from a bank, a store and in passes, and those of the matrices."""

import numpy as np
import pytest

from gramplane.cluster import open_executor
from gramplane.kernels.bank.bank import PackedBank
from gramplane.kernels.grams.spec import as_specs
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams.grams import Grams
from gramplane.pipeline.grams.settings import GramSettings
from gramplane.storage import MemoryBlocks


def test_entries_of_a_bank():
    rng = np.random.default_rng(0)
    grams = rng.normal(size=(2, 300, 300))
    grams += grams.transpose(0, 2, 1)
    bank = PackedBank.from_dense(grams, np.float64)
    bank.scale[:] = (2.0, 0.5)
    i, j = rng.integers(0, 300, (2, 2000))
    np.testing.assert_array_equal(bank.entries(i, j), grams[:, i, j] * np.array([[2.0], [0.5]]))
    for bad in ([0, 300], [-1, 0], [0]):
        with pytest.raises(ValueError, match="from 0 to 299"):
            bank.entries(bad, [0, 1])


@pytest.mark.parametrize("normalize", ["trace", "cosine"])
def test_every_policy_gives_the_same_entries(tmp_path, normalize):
    rng = np.random.default_rng(1)
    data = MemoryBlocks(rng.normal(size=(270, 3)))
    specs = [spec.__class__(spec.name, spec.params, spec.columns, normalize) for spec in as_specs(["rbf(gamma=0.5)", "poly(degree=2)"], 3)]
    i, j = rng.integers(0, 270, (2, 500))
    with open_executor(None) as executor:
        resources = Resources(executor)
        decided = [GramSettings(policy, 128, str(tmp_path / "g")) for policy in ("memory", "recompute", "store")]
        found = [Grams(data, specs, settings, resources).entries(i, j) for settings in decided]
        whole = Grams(data, specs, None, resources)
        for q in range(2):
            matrix = whole.combine(np.eye(2)[q]).rows(np.arange(270))
            np.testing.assert_allclose(found[0][q], matrix[i, j], rtol=1e-6)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
