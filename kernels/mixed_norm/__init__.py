"""Solvers of the sub-problem min 1/2 (sum_h ||omega_h||)^2 + P(Z omega + X g); all share one interface."""

from __future__ import annotations

from collections.abc import Callable

from .apg import solve_apg
from .mkl_dual import solve_mkl
from .newton import solve_newton
from .problem import GroupProblem, GroupSolution
from .rows import Rows
from .rows_blocked import ROW_BLOCK, ROW_OPERATIONS, BlockedRows, RowData, RowQuery, add_sums, rows_for, tree_sum
from .rows_local import LocalRows

__all__ = ["ROW_BLOCK", "ROW_OPERATIONS", "SOLVERS", "BlockedRows", "GroupProblem", "GroupSolution", "LocalRows", "RowData", "RowQuery"]
__all__ += ["Rows", "add_sums", "rows_for", "solve_apg", "solve_mkl", "solve_newton", "tree_sum"]

SOLVERS: dict[str, Callable[..., GroupSolution]] = {"newton": solve_newton, "apg": solve_apg, "mkl": solve_mkl}
