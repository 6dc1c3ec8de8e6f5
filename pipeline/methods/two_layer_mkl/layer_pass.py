"""The second layer over Gram matrices: the exponential of their weighted sum, and sums of the matrices' entries weighted by this
exponential.

Each computation is one pass over the block pairs, bit-identical wherever the pairs are stored; in memory, no pass is needed. A second layer
that exceeds the driver's memory is stored as a matrix in single precision and read by passes only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.bank.products import TileSums, tile_sums, total_forms
from ....kernels.bank.two_layer import bank_sums, block_layer, block_sums, exponentiate, is_refused
from ....kernels.svm.dual import Gram
from ...core.resources import Shared, resolve
from ...grams.grams import Grams
from ...grams.pair_passes import Filled, forms_bytes, matrix_bytes, pair_batches, place_pair
from ...grams.sources import PairRef, load_normalised, pair_bytes
from ...grams.weighted_sum import BlockSum, Norms
from ...passes.blocks import join_lists


def layer_chunk(ref: PairRef, weights: np.ndarray, norms: Norms) -> list[Filled]:
    """Return one block pair of the second layer."""
    return [Filled(ref.rows, ref.cols, block_layer(load_normalised(ref, norms), weights))]


def weigh_chunk(ref: PairRef, weights: np.ndarray, beta: Shared, norms: Norms) -> list[TileSums]:
    """Return the contributions of one block pair to ``beta' (K2 o K_q) beta``."""
    block = load_normalised(ref, norms)
    return [block_sums(block, ref.rows, ref.cols, block_layer(block, weights), resolve(beta))]


def exponential_chunk(ref: PairRef, scale: np.ndarray, beta: Shared, norms: Norms) -> list[TileSums]:
    """Return the contributions of one block pair to ``beta' exp(K_q) beta``, kernel by kernel."""
    vectors, blocks = resolve(beta)[None], zip(load_normalised(ref, norms), scale, strict=True)
    layers = (exponentiate(factor * block.astype(np.float64))[None] for block, factor in blocks)
    return [TileSums(ref.rows, ref.cols, np.concatenate([tile_sums(layer, ref.rows, ref.cols, vectors).values for layer in layers]))]


def layer_bytes(ref: PairRef) -> int:
    """Bound the memory of a task in bytes: the loaded block, one pair of the second layer in float64, and three copies of that pair."""
    return pair_bytes(ref) + 4 * matrix_bytes(ref, 8)


def layer_pass(name: str, chunk: Callable[..., list[Any]], refs: Sequence[PairRef], result: int, *broadcast: object) -> Plan[list[Any]]:
    """Return a pass that returns at most ``result`` bytes for every pair of blocks."""
    program = BlockProgram(name, chunk, join_lists, layer_bytes, result + 256, combine_bytes=2 * (result + 256) * len(refs))
    return plan(program, refs, *broadcast)


def layer_pass_bytes(refs: Sequence[PairRef], k: int, block: int, *, whole: bool) -> int:
    """Return the memory in bytes of the largest step of the passes in this module. ``whole``: the driver receives the layer itself."""
    sums = layer_pass("planned", list, refs, layer_sums_bytes(k, block)).memory_bound
    if not whole:
        return sums
    return max(sums, *(layer_pass("planned", list, batch, _layer_result(batch)).memory_bound for batch in pair_batches(refs)))


def layer_sums_bytes(k: int, block: int) -> int:
    """Return the size in bytes of the contributions of all tiles of a block pair to sums over k kernels."""
    return forms_bytes(k, 1, block)


def _layer_result(batch: Sequence[PairRef]) -> int:
    return max(matrix_bytes(ref, 8) for ref in batch)


class LayerGrams(Grams):
    """Gram matrices as the first layer of a two-layer SVM, a :class:`~gramplane.kernels.bank.two_layer.Layer`.

    With ``layer_by_passes`` the driver holds only the part of the second layer that the solver works on.
    """

    grows = True
    layer_by_passes: bool = False
    _layer: np.ndarray | None = None

    def kernel(self, mu: np.ndarray) -> np.ndarray | Gram | None:
        """Return ``K2(mu) = exp(sum_q mu_q K_q)``, as a float64 array ``(n, n)`` or as a matrix that is read by passes. Return None if the
        largest exponent exceeds the limit.

        The next call overwrites the matrix.
        """
        weights, inner = np.asarray(mu, np.float64) * self.scale, np.asarray(mu, np.float64) @ self.diagonals()
        if is_refused(inner):
            return None
        if self.layer_by_passes:
            return self._by_passes(BlockSum(self._norms, weights, exponential=True), np.exp(inner))
        self._layer = np.empty((self.n, self.n)) if self._layer is None else self._layer
        if self._bank is not None:
            self._bank.combine(weights, self._layer, exponentiate)
        else:
            for batch in pair_batches(self._refs):
                work = layer_pass("second-layer", layer_chunk, batch, _layer_result(batch), weights, self._norms)
                for block in self.resources.run_pass(work):
                    place_pair(self._layer, block)
        return self._layer

    def weigh(self, mu: np.ndarray, kernel: Any, beta: np.ndarray) -> np.ndarray:
        """Return ``beta' (K2 o K_q) beta`` of every kernel, ``(k,)``, where ``kernel`` is ``K2(mu)``, in one pass over all entries."""
        if self._bank is not None:
            return bank_sums(self._bank, kernel, beta) * self.scale
        weights = np.asarray(mu, np.float64) * self.scale
        return self._sums("layer-sums", weigh_chunk, weights, self._shared(beta), self._norms) * self.scale

    def exponential_forms(self, beta: np.ndarray) -> np.ndarray:
        """Return ``beta' exp(K_q) beta`` of every kernel, ``(k,)``, in one pass over all entries."""
        return self._sums("layer-forms", exponential_chunk, self.scale, self._shared(beta), self._norms)

    def _sums(self, name: str, chunk: Callable[..., list[Any]], *broadcast: object) -> np.ndarray:
        work = layer_pass(name, chunk, self._refs, layer_sums_bytes(self.k, self.settings.block), *broadcast)
        return total_forms(self.resources.run_pass(work))[:, 0]

    def _shared(self, beta: np.ndarray) -> Shared:
        return self.resources.share("beta", np.ascontiguousarray(beta, np.float64))
