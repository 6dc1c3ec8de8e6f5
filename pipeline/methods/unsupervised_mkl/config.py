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
        description="kernels as short texts like rbf(gamma=0.5), rbf (its width the median distance of rows), poly(degree=2)[3,7:9] or "
        "linear[mean radius]; default: kernel_grid, ten Gaussian widths and three polynomial degrees on all features and on each one, "
        "while it is small, else up to ten kernels on all features, widths around the median distance",
    )
    n_bases: Count = Field(10, description="samples that rebuild a sample")
    gamma1: NonNegative = Field(
        0.01,
        description="weight of the distance between a sample and its bases. It decides how many kernels keep a weight (of 52 to 793 on "
        "eight sets 40 at 0, 18 at 0.01, 3 at 0.1, 1 at 1), not how good they are: accuracies differ by less than a point, and those of "
        "equal weights are as good in the mean",
    )
    gamma2: NonNegative = Field(0.0, description="cost of one basis; decides with stop=gain only")
    stop: Literal["size", "gain"] = Field("size", description="size: exactly n_bases bases; gain: fewer, where no further one helps")
    safeguard: bool = Field(True, description="keep a sample's bases where new ones are worse, so that the objective never rises")
    n_components: Count = Field(2, description="components of the kernel principal component analysis, which transform gives")
    start: Literal["greedy", "sparse-coding", "kernel-sparse-coding"] = Field(
        "greedy",
        description="first bases: greedy under equal weights, or those of a sparse coding of every sample by the others (a lasso with the "
        "penalty gamma2, or where that is 0 a tenth of the least one that leaves no basis), of the rows or, kernel-sparse-coding, in the "
        "feature space of the equally weighted kernels",
    )
    normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine", "column_sum"] = Field(
        "trace",
        description="normalisation of kernels that leave it open: trace (mean diagonal 1), unit_trace (the thesis'; entries of size 1/n "
        "leave nearly no reconstruction, and one kernel takes all the weight), column_sum (the n_bases largest entries of a row off the "
        "diagonal sum to 1 on average), multiplicative, cosine, none",
    )
    tol: Positive = Field(1e-5, description="relative decrease of the objective at which the fit ends, once no bases change")
    max_iter: Count = Field(50, description="alternations between bases and weights at most; a warning tells when they end the fit")
    grams: GramPolicy = Field("auto", description="where Gram matrices lie; auto decides from sizes")
    gram_store: StorePath = None
