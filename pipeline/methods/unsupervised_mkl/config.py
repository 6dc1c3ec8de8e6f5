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
    n_bases: Count = Field(10, description="number of samples that reconstruct a sample")
    gamma1: NonNegative = Field(
        0.01,
        description="weight of the distance between a sample and its bases",
    )
    gamma2: NonNegative = Field(0.0, description="cost of one basis; used with stop=gain only")
    stop: Literal["size", "gain"] = Field("size", description="exactly n_bases bases, or fewer if no further one helps")
    safeguard: bool = Field(True, description="keep the bases of a sample if new ones are worse")
    n_components: Count = Field(2, description="number of components that transform returns")
    start: Literal["greedy", "sparse-coding", "kernel-sparse-coding"] = Field(
        "greedy",
        description="initial bases: greedy, or from a sparse coding",
    )
    normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine", "column_sum"] = Field(
        "trace",
        description="normalisation of kernels without their own",
    )
    tol: Positive = Field(1e-5, description="stopping tolerance: relative decrease of the objective")
    max_iter: Count = Field(50, description="largest number of alternations of bases and weights")
    grams: GramPolicy = Field("auto", description="where to keep Gram matrices; auto: by their size")
    gram_store: StorePath = None
