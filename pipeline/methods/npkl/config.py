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
        description="cap of tr K^p",
    )
    G: Positive | None = Field(None, description="weight of the penalty (G/p) tr K^p, in place of the cap")
    C: Positive = Field(
        0.2,
        description="loss weight of a constrained pair, counted in both orders",
    )
    n_neighbors: Count = Field(5, description="neighbours in the graph that the kernel is smooth on")
    graph: Literal["mutual", "union"] = Field("union", description="link rows where both are neighbours, or one of them")
    closure: bool = Field(
        False,
        description="use all pairs that the given ones imply",
    )
    selection: Literal["active", "random"] | None = Field(
        None,
        description="which constraints are used",
    )
    n_select: Count | None = Field(None, description="rows whose constraints a selection keeps; default: half")
    base: Count | None = Field(
        None,
        description="number of smooth functions that the kernel is made of",
    )
    tol: Small = Field(1e-4, description="relative duality gap at which the fit ends")
    max_iter: Count = Field(200, description="eigendecompositions at most")

    @model_validator(mode="after")
    def _forms(self) -> NPKLConfig:
        if self.p == 1 and self.loss != "linear":
            raise ValueError(f"p=1: needs loss='linear', not {self.loss!r}: with other losses there is no closed form of K; take p above 1")
        if self.p == 1 and self.G is not None:
            raise ValueError("p=1: needs the cap B; with the penalty G the optimum is zero or unbounded")
        if self.n_select is not None and self.selection is None:
            raise ValueError(f"n_select={self.n_select}: needs selection='active' or 'random'")
        return self
