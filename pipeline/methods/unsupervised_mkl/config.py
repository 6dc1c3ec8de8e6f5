"""Parameters of unsupervised multiple kernel learning."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...records.config import Count, GramConfig, GramPolicy, NonNegative, Positive, StorePath


class UMKLConfig(GramConfig):
    """Parameters of unsupervised multiple kernel learning (``unsupervised-mkl``)."""

    has_scores = False

    kernels: list[str] | None = Field(
        None,
        description="kernels such as rbf(gamma=0.5) or linear",
    )
    n_bases: Count = Field(10, description="samples that rebuild a sample")
    gamma1: NonNegative = Field(
        0.01,
        description="weight of the distance between a sample and its bases",
    )
    gamma2: NonNegative = Field(0.0, description="cost of one basis; decides with stop=gain only")
    stop: Literal["size", "gain"] = Field("size", description="exactly n_bases bases, or fewer where none helps")
    safeguard: bool = Field(True, description="keep bases where new ones are worse")
    n_components: Count = Field(2, description="components that transform gives")
    start: Literal["greedy", "sparse-coding", "kernel-sparse-coding"] = Field(
        "greedy",
        description="first bases: greedy, or of a sparse coding",
    )
    normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine", "column_sum"] = Field(
        "trace",
        description="normalisation of kernels that leave it open",
    )
    tol: Positive = Field(1e-5, description="relative decrease of the objective that ends the fit")
    max_iter: Count = Field(50, description="alternations between bases and weights at most")
    grams: GramPolicy = Field("auto", description="where Gram matrices lie; auto decides from sizes")
    gram_store: StorePath = None
