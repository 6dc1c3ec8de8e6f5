"""The second layer over Gram matrices: the exponential of their weighted sum, and sums of their entries weighted by it.

Everything is one pass over the block pairs, wherever they lie, with the same bits: in memory the bank answers without a pass. A second
layer beyond the driver's memory is a matrix of single precision that only passes see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....cluster import BlockProgram, plan
from ....kernels.bank.block_sums import TileSums, tile_sums, total_forms
from ....kernels.bank.two_layer import LARGEST_EXPONENT, bank_sums, block_layer, block_sums, exponentiate, is_refused
from ....kernels.svm.dual import Gram
from ...grams.grams import Filled, Grams, Norms, place_pair
from ...grams.sources import PairRef, load_normalised, pair_bytes
from ...grams.weighted_sum import combined_gram
from ...passes.blocks import join_lists
from ...records.context import Shared, resolve


def layer_chunk(ref: PairRef, weights: np.ndarray, norms: Norms) -> list[Filled]:
    """Return one block pair of the second layer."""
    return [Filled(ref.rows, ref.cols, block_layer(load_normalised(ref, norms), weights))]


def weigh_chunk(ref: PairRef, weights: np.ndarray, beta: Shared, norms: Norms) -> list[TileSums]:
    """Return the shares of one block pair in ``beta' (K2 o K_q) beta``."""
    block = load_normalised(ref, norms)
    return [block_sums(block, ref.rows, ref.cols, block_layer(block, weights), resolve(beta))]


def exponential_chunk(ref: PairRef, scale: np.ndarray, beta: Shared, norms: Norms) -> list[TileSums]:
    """Return the shares of one block pair in ``beta' exp(K_q) beta``, kernel by kernel."""
    vectors, blocks = resolve(beta)[None], zip(load_normalised(ref, norms), scale, strict=True)
    layers = (exponentiate(factor * block.astype(np.float64))[None] for block, factor in blocks)
    return [TileSums(ref.rows, ref.cols, np.concatenate([tile_sums(layer, ref.rows, ref.cols, vectors).values for layer in layers]))]


def layer_bytes(ref: PairRef) -> int:
    """Bound the memory of a task: the loaded block, one pair of the second layer in float64 and three of its copies."""
    return pair_bytes(ref) + 4 * _pair_result(ref)


def _pair_result(ref: PairRef) -> int:
    return 8 * (ref.rows[1] - ref.rows[0]) * (ref.cols[1] - ref.cols[0])


class LayerGrams(Grams):
    """Gram matrices as the first layer of a two-layer machine, a :class:`~gramplane.kernels.bank.two_layer.Layer`.

    With ``layer_by_passes`` the driver holds no more of the second layer than the solver works on.
    """

    grows = True
    layer_by_passes: bool = False
    _layer: np.ndarray | None = None

    def kernel(self, mu: np.ndarray) -> np.ndarray | Gram | None:
        """Return ``K2(mu) = exp(sum_q mu_q K_q)``, float64 ``(n, n)`` or by passes, or ``None`` where its largest exponent is refused.

        The matrix is overwritten by the next call.
        """
        weights = np.asarray(mu, np.float64) * self.scale
        if self.layer_by_passes:
            inner = np.asarray(mu, np.float64) @ self.diagonals()
            # The sum is positive semi-definite: no entry is beyond the largest of its diagonal.
            if inner.max() > LARGEST_EXPONENT:
                return None
            return combined_gram(self.ctx, self._refs, weights, self._norms, np.exp(inner), self.settings.block, exponential=True)
        self._layer = np.empty((self.n, self.n)) if self._layer is None else self._layer
        if self._bank is not None:
            exponentiate(self._bank.combine(weights, self._layer))
        else:
            for batch in self._batches():
                for block in self._layer_pass("second-layer", layer_chunk, _pair_result(batch[0]), batch, weights, self._norms):
                    place_pair(self._layer, block)
        return None if is_refused(self._layer) else self._layer

    def weigh(self, mu: np.ndarray, kernel: Any, beta: np.ndarray) -> np.ndarray:
        """Return ``beta' (K2 o K_q) beta`` of every kernel, ``(k,)``, where ``kernel`` is ``K2(mu)``; one pass over all entries."""
        if self._bank is not None:
            return bank_sums(self._bank, kernel, beta) * self.scale
        weights = np.asarray(mu, np.float64) * self.scale
        parts = self._layer_pass("layer-sums", weigh_chunk, self._sums_bytes, self._refs, weights, self._shared(beta), self._norms)
        return total_forms(parts)[:, 0] * self.scale

    def exponential_forms(self, beta: np.ndarray) -> np.ndarray:
        """Return ``beta' exp(K_q) beta`` of every kernel, ``(k,)``; one pass over all entries."""
        shared = self._shared(beta)
        parts = self._layer_pass("layer-forms", exponential_chunk, self._sums_bytes, self._refs, self.scale, shared, self._norms)
        return total_forms(parts)[:, 0]

    @property
    def _sums_bytes(self) -> int:
        return 8 * self.k * (self.settings.block // 128 + 1) ** 2

    def _shared(self, beta: np.ndarray) -> Shared:
        return self.ctx.broadcast("beta", np.ascontiguousarray(beta, np.float64))

    def _layer_pass(
        self, name: str, chunk: Callable[..., list[Any]], result: int, refs: Sequence[PairRef], *broadcast: object
    ) -> list[Any]:
        program = BlockProgram(name, chunk, join_lists, layer_bytes, result + 256, combine_bytes=2 * (result + 256) * len(refs))
        return self.ctx.run_pass(plan(program, refs, *broadcast))
