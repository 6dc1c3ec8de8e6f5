"""What the interior path of a shared-subspace search reads, and when its systems fit the driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ....kernels.svm.dual import DenseGram
from ...grams.grams import Grams
from ...grams.weighted_sum import MATRIX_SHARE

MAX_SYSTEM_ROWS = 4000  # rows beyond which a system of the interior path, cubic in them, takes longer than many machines


def interior_fits(n: int, k: int, n_tasks: int, driver_memory: int) -> bool:
    """Return whether the system of a step, some matrices of all rows, fits the driver together with the machine's."""
    return n <= MAX_SYSTEM_ROWS and interior_bytes(n, k, n_tasks) <= MATRIX_SHARE * driver_memory


def interior_bytes(n: int, k: int, n_tasks: int) -> int:
    """Return the bytes of that system."""
    return 8 * (6 * n**2 + 5 * k * n * n_tasks)


@dataclass(frozen=True)
class PathMatrices:
    """Passes over the matrices of a search."""

    grams: Grams
    codes: np.ndarray  # (n,) tasks of the rows
    n_tasks: int
    task_forms: Callable[[np.ndarray], np.ndarray]

    def forms(self, beta: np.ndarray) -> np.ndarray:
        """Return the forms of pairs of tasks, ``(k, T, T)``."""
        return self.task_forms(beta)

    def products(self, beta: np.ndarray) -> np.ndarray:
        """Return the products with the coefficients of every task, ``(k, n, T)``."""
        member = np.arange(self.n_tasks) == self.codes[:, None]
        columns = self.grams.products(member * beta[:, None], np.ones(member.shape, bool))
        return np.ascontiguousarray(columns.transpose(0, 2, 1))

    def matrix(self, coupling: np.ndarray) -> np.ndarray:
        """Return the kernel of the pooled machine, in float64."""
        gram = self.grams.combine_tasks(coupling, self.codes)
        assert isinstance(gram, DenseGram), "the path begins where its system fits the driver"
        return gram.array.astype(np.float64)
