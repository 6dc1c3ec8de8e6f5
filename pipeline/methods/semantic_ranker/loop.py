r"""Re-ranking the images of a query by a kernel learnt from looks and tags (Zhuang, thesis, 2011, chapter 6).

The kernel agrees with the tags as far as visual neighbours allow:

.. math::

    \min_{K \succeq 0, \; \mathrm{tr} KK \le B} -\mathrm{tr}(K H K_t H)
    + \frac{C}{2} \sum_{(i,j) \in E} \max(0, K_{ii} + K_{jj} - 2 K_{ij} - d_{ij}^2)^2 \quad (6.2)

with tag vectors T, :math:`K_t = T T'`, pairs E of visual neighbours and their squared distances. One step is one eigendecomposition of the
dual ascent that all kernels known by their spectrum share. A random walk on K then gives the scores.
"""

from __future__ import annotations

import numpy as np

from ....kernels.spectral.dual_ascent import SpectralState, advance_ascent, begin_ascent, kernel_at, progress_figures
from ....kernels.spectral.problem import Evaluation
from ...core.result import Step
from ...records.context import RunContext
from .config import RankerConfig
from .images import Images
from .problem import build_problem


class RankerLoop:
    """The ascent on the dual of (6.2); ``seed`` is the eigensolver's."""

    state_type = SpectralState

    def __init__(self, config: RankerConfig, images: Images, seed: int) -> None:
        self.config, self.images = config, images
        self.problem = build_problem(config, images, seed)

    def init(self, ctx: RunContext) -> SpectralState:
        """Return the state before the first evaluation: no distance counts."""
        return begin_ascent(self.problem, np.zeros(len(self.images.pairs)))

    def step(self, state: SpectralState, ctx: RunContext) -> Step[SpectralState]:
        """Evaluate once, and move."""
        new = advance_ascent(self.problem, state, tol=self.config.tol, max_iter=self.config.max_iter)
        return Step(new, {**progress_figures(self.problem, new), "active_pairs": int(np.count_nonzero(new.best_alpha))})

    def learnt_kernel(self, state: SpectralState) -> Evaluation:
        """Return the kernel of least objective so far."""
        return kernel_at(self.problem, state, tol=self.config.tol)
