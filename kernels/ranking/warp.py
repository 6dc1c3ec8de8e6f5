r"""A kernel learnt on some points, extended to others: an input kernel warped by the learnt one.

.. math::

    \tilde k(x, z) = k_x(x, z) - \kappa_x' (I + L K_x)^{-1} L \kappa_z, \qquad \kappa_x = (k_x(x, x_1), \ldots, k_x(x, x_n))

On the points themselves this is :math:`(K_x^{-1} + L)^{-1}`, symmetric and positive semidefinite where L is. Source: Zhuang, PhD thesis on
kernel learning, Nanyang Technological University, 2011, section 6.4, after Sindhwani, Niyogi and Belkin, ICML 2005.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from ..jit import one_thread


@dataclass(frozen=True)
class Warp:
    """What is subtracted from an input kernel: ``(I + L K_x)^-1 L``, ``(n, n)``, symmetric, between its rows of the n points."""

    correction: np.ndarray

    def block(self, kernel: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the warped kernel of an input kernel ``(a, b)``, from its blocks ``(a, n)`` and ``(b, n)`` with the n points."""
        with one_thread():
            return kernel - left @ self.correction @ right.T


def graph_laplacian(kernel: np.ndarray) -> np.ndarray:
    """Return ``diag(W 1) - W`` of ``W = max(K, 0)`` without its diagonal, ``(n, n)``: positive semidefinite for every symmetric K. The
    thesis prints ``diag(K 1) - K``. A learnt kernel has K 1 = 0, so that is -K, and the warped kernel is not positive semidefinite.
    """
    weights = np.maximum(kernel, 0.0)
    np.fill_diagonal(weights, 0.0)
    out = -weights
    np.fill_diagonal(out, weights.sum(axis=1))
    return out


def build_warp(gram: np.ndarray, factor: np.ndarray, mode: str = "corrected") -> Warp:
    """Return the warp by a learnt kernel ``K = F F'``, F ``(n, r)``, of the input kernel ``gram`` K_x on the points, positive semidefinite.
    ``"corrected"``: L is the Laplacian of :func:`graph_laplacian`. ``"seed"``: L = -K, as printed; ValueError if the largest eigenvalue of
    ``K_x^(1/2) K K_x^(1/2)`` is not below 1: no warped kernel is positive semidefinite then.
    """
    with one_thread():
        if mode == "seed":
            # The nonzero eigenvalues are those of F' K_x F.
            top = float(np.linalg.eigvalsh(factor.T @ gram @ factor)[-1]) if factor.shape[1] else 0.0
            if top >= 1.0:
                raise ValueError(
                    f"warp='seed': the learnt kernel is too large for the input kernel, the largest eigenvalue of K_x^(1/2) K K_x^(1/2) is "
                    f"{top:.4g} and must be below 1; give a smaller B or a larger gamma, or warp='corrected'"
                )
            bend = -(factor @ factor.T)
        else:
            bend = graph_laplacian(factor @ factor.T)
        system = bend @ gram
        system[np.diag_indices_from(system)] += 1.0
        correction = scipy.linalg.solve(system, bend, overwrite_a=True)
    return Warp(0.5 * (correction + correction.T))
