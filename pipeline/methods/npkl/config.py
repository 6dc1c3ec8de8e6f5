"""Parameters of non-parametric kernel learning."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ...records.config import Count, MethodConfig, Positive

Small = Annotated[float, Field(ge=1e-12, lt=1)]


class NPKLConfig(MethodConfig):
    """Parameters of non-parametric kernel learning (``npkl``)."""

    has_scores = False

    loss: Literal["linear", "squared_hinge", "square", "hinge"] = Field(
        "linear",
        description="loss of a pair; linear has a closed form",
    )
    p: Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(2.0, description="power of the regulariser tr K^p; 1: loss=linear only")
    B: Positive = Field(
        1.0,
        description="upper bound of tr K^p",
    )
    G: Positive | None = Field(None, description="weight of a penalty (G/p) tr K^p that replaces the bound B")
    C: Positive = Field(
        0.2,
        description="loss weight of a constrained pair, counted in both orders",
    )
    n_neighbors: Count = Field(5, description="number of neighbours in the graph the kernel is smooth on")
    graph: Literal["mutual", "union"] = Field("union", description="link rows if each is a neighbour of the other, or either is")
    closure: bool = Field(
        False,
        description="add all pairs that the given ones imply",
    )
    selection: Literal["active", "random"] | None = Field(
        None,
        description="constraints to use",
    )
    n_select: Count | None = Field(None, description="number of rows whose constraints are kept; default: half")
    base: Count | None = Field(
        None,
        description="restrict the kernel to this many smooth functions",
    )
    tol: Small = Field(1e-4, description="stopping tolerance: relative duality gap")
    max_iter: Count = Field(200, description="largest number of eigendecompositions")

    @model_validator(mode="after")
    def _forms(self) -> NPKLConfig:
        if self.p == 1 and self.loss != "linear":
            raise ValueError(f"p=1: needs loss='linear', not {self.loss!r}: with other losses there is no closed form of K; take p above 1")
        if self.p == 1 and self.G is not None:
            raise ValueError("p=1: needs the cap B; with the penalty G the optimum is zero or unbounded")
        if self.n_select is not None and self.selection is None:
            raise ValueError(f"n_select={self.n_select}: needs selection='active' or 'random'")
        return self
