"""The kernel duals and their solvers in one place."""

from __future__ import annotations

from .decomposition import solve_decomposition
from .dual import DenseGram, DualProblem, DualSolution, Scratch, ridge_problem, svc_problem, svr_problem
from .ridge import RidgeSolver, solve_ridge
from .smo import solve_smo, solve_to_gap

__all__ = ["DenseGram", "DualProblem", "DualSolution", "RidgeSolver", "Scratch", "ridge_problem", "solve_decomposition"]
__all__ += ["solve_ridge", "solve_smo", "solve_to_gap", "svc_problem", "svr_problem"]
