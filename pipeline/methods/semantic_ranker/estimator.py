"""SemanticKernelRanker and VisualRank: ranking by a random walk on a learnt or given kernel."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ....kernels.jit import one_thread
from ....kernels.ranking.random_walk import rank_rows
from ....storage import BlockStore, MemoryBlocks
from ....storage.data import NUMBERS, as_data, in_memory, is_store, square_in_memory
from ....storage.errors import Matrix, UserData
from ...core.resources import RunContext
from ...estimators.base import Estimator
from ...estimators.inputs import Callbacks, Seed, fan_out, fit_context, seed_of, warn_user
from ...estimators.kernels import KernelEstimator, SpectralEstimator
from ...records.data_set import DataSet
from .method import Ranker
from .method import VisualRank as WalkMethod
from .model import RankerModel, RankingModel, UnseenImages
from .problem import RankerInputs
from .queries_problem import query_figures
from .walk_problem import WalkInputs


class SemanticKernelRanker(SpectralEstimator):
    r"""Re-rank the images of a query by a kernel learnt from their visual features and tags.

    Learns the kernel matrix that agrees best with the tags while visual neighbours stay near each other,

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} KK \le B} -\mathrm{tr}(K H T T' H)
        + \frac{C}{2} \sum_{(i,j) \in E} \max(0, K_{ii} + K_{jj} - 2 K_{ij} - d_{ij}^2)^2,

    and scores the images by a random walk on it, :math:`r = \lambda S r + (1 - \lambda) \pi`, with :math:`\lambda` the ``damping``. The
    rows of T are the tf-idf vectors of the tags, and H is the centring matrix. E are the pairs of visual neighbours, and :math:`d_{ij}^2`
    their squared distances divided by the mean over all pairs, so that the unit of the features does not matter. S has the positive entries
    of K, scaled so that columns sum to 1.

    A fit ranks one query, in one process. With ``queries``, a fit ranks many queries as parallel tasks; the result of each query is
    bit-identical to a fit of that query alone.

    Parameters
    ----------
    n_neighbors : int >= 1, default=6
        Number of visual neighbours of an image. Their distances in the kernel are penalised if they exceed the visual distances.
    C : float > 0, default=1.0
        Weight of the squared excess of a distance over its bound: C/2 * sum max(0, excess)^2.
    B : float > 0 or None, default=None
        Upper bound of tr K^2. Default: the number of images.
    damping : float >= 0 and < 1, default=0.85
        Share of a score that comes from similar images; the rest comes from the prior.
    graph : {"mutual", "union"}, default='mutual'
        Link two images if each is a nearest neighbour of the other (``"mutual"``) or if either is (``"union"``).
    base : int >= 1 or None, default=None
        Restrict the kernel to this many smooth functions of the visual neighbour graph (smallest eigenvectors of its Laplacian): faster.
        Default: all functions.
    diagonal : {"zero", "keep"}, default='zero'
        Whether an image counts as similar to itself in the random walk (``"keep"``) or not (``"zero"``).
    min_images : int >= 1, default=1
        Drop tags that occur in fewer images.
    untagged : {"raise", "zero"}, default='raise'
        Images without a tag: ``"raise"`` rejects them; ``"zero"`` gives them a tag vector of zeros, so that only their visual features
        count.
    gamma : float > 0, default=3.0
        For unseen images: exp(-gamma ||x - z||^2 / mean) is the kernel that is warped, where mean is the mean squared distance of the
        training images.
    warp : {"corrected", "seed"}, default='corrected'
        For unseen images: ``"corrected"`` warps by the graph Laplacian of max(K, 0); ``"seed"`` warps by -K, as printed in the thesis, and
        fails if the kernel would not be positive semi-definite.
    tol : float > 0, default=1e-05
        Stopping tolerance of the kernel: relative duality gap.
    max_iter : int >= 1, default=300
        Largest number of eigendecompositions; a warning is issued if the fit ends at this limit.
    walk_tol : float >= 1e-14 and < 1, default=1e-10
        Stopping tolerance of the random walk: l1 norm of the change of the scores.
    cluster : str or None, default=None
        Where fits of many queries run. A single query is fitted in this process.
    random_state : int, RandomState or None, default=None
        Seed of the eigensolver's initial block; results agree to within ``tol``.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and remaining time in a terminal or notebook, else one line per round. 2
        also sends every event to the logger ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or list of functions, called with an event record after each step.

    Attributes
    ----------
    scores_, prior_
        ``(n_samples,)`` scores that sum to 1, and ``(n_samples,)`` prior :math:`\pi`; with many queries, one entry per row of the table of
        queries.
    queries_
        Names of the queries, if there are many.
    pairs_, dual_coef_
        ``(n_pairs, 2)`` pairs E, and ``(n_pairs,)`` their best dual variables, which certify the objective; 0 if a distance is within its
        bound. With many queries, the pairs are listed query by query, with images numbered within each query.
    objective_, dual_gap_
        Objective of the kernel, and its certified distance to the optimum; ``(n_queries,)`` each with many queries.
    n_iter_, converged_, stop_reason_, history_
        Number of iterations, whether ``tol`` was reached, the reason for stopping, and one array per quantity over the iterations.
    eigenvectors_, eigenvalues_
        ``(n_samples, rank)`` and ``(rank,)``: :math:`K = U \mathrm{diag}(\lambda) U'`, with positive eigenvalues in descending order.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> from gramplane import SemanticKernelRanker
    >>> looks = [
    ...     [0.0, 0.1],
    ...     [0.1, 0.0],
    ...     [0.2, 0.1],
    ...     [3.0, 0.2],
    ...     [3.1, 0.0],
    ...     [0.9, 4.0],
    ... ]
    >>> tags = ["duck pond", "duck pond", "duck", "toy", "toy car", "car"]
    >>> ranker = SemanticKernelRanker(n_neighbors=3).fit(looks, tags)
    >>> tags[ranker.rank()[0]]
    'toy car'

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 6.
    """

    _method = Ranker()
    _many = False

    def __init__(
        self,
        n_neighbors: int = 6,
        C: float = 1.0,
        B: float | None = None,
        damping: float = 0.85,
        graph: Literal["mutual", "union"] = "mutual",
        base: int | None = None,
        diagonal: Literal["zero", "keep"] = "zero",
        min_images: int = 1,
        untagged: Literal["raise", "zero"] = "raise",
        gamma: float = 3.0,
        warp: Literal["corrected", "seed"] = "corrected",
        tol: float = 1e-05,
        max_iter: int = 300,
        walk_tol: float = 1e-10,
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.C = C
        self.B = B
        self.damping = damping
        self.graph = graph
        self.base = base
        self.diagonal = diagonal
        self.min_images = min_images
        self.untagged = untagged
        self.gamma = gamma
        self.warp = warp
        self.tol = tol
        self.max_iter = max_iter
        self.walk_tol = walk_tol
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    @property
    def _place(self) -> str | None:
        return self.cluster if self._many else "sync"

    def fit(self, X: object, tags: object = None, prior: ArrayLike | None = None, queries: object = None) -> Self:
        """Learn the kernel and score the images.

        Parameters
        ----------
        X
            ``(n_samples, n_features)`` visual features: an array, a sparse matrix, a Dask array, or a block store.
        tags
            ``(n_samples, n_tags)`` counts, sparse or dense; or for each image a list of tags, or a string of tags separated by blanks.
        prior
            ``(n_samples,)`` non-negative numbers, such as scores of a text search. Default: the weights of a store's rows, else uniform.
        queries
            Table of many queries, with rows ``(query, row of X)`` or, if every row has a prior, ``(query, row of X, prior)``. Default: all
            images belong to one query.

        Raises
        ------
        ValueError
            Parameter out of range, non-finite data, fewer than two images, tags that do not have one entry per image or are the same for
            all images, images without tags (the message names their rows), or a prior with a negative entry.
        """
        data, _ = self._data(X)
        if tags is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None; give the tags of every image")
        inputs = RankerInputs.read(data, in_memory(tags, "tags"), in_memory(prior, "prior"), in_memory(queries, "queries"))
        self._many = queries is not None
        self._fit(inputs)
        return self

    def rank(self, k: int | None = None, query: object = None) -> np.ndarray:
        """Return the images in descending order of score, the first ``k`` or all; ties keep the order of rows. ``query`` selects one of
        many queries.
        """
        check_is_fitted(self, "model_")
        if not isinstance(self.model_, RankingModel):
            return rank_rows(self.scores_)[:k]
        span = self.model_.span(self._query_number(query))
        return self.model_.rows[span][rank_rows(self.model_.scores[span])][:k]

    def certificate(self, query: object) -> dict[str, Any]:
        """Return the results of one of many queries: sizes, objective, gap, number of steps, and whether it converged."""
        check_is_fitted(self, "model_")
        if not isinstance(self.model_, RankingModel):
            raise ValueError("certificate is for fits of many queries; after a fit of one query see objective_ and dual_gap_")
        return query_figures(self.model_, self._query_number(query))

    def _query_number(self, query: object) -> int:
        names: Any = self.model_.queries  # pyright: ignore[reportAttributeAccessIssue] (of many queries)
        if str(query) not in names:
            raise ValueError(f"query={query!r} is not one of the {len(names)} queries of the fit, such as {names[0]!r}")
        return names.index(str(query))

    def _one_query(self, what: str) -> None:
        check_is_fitted(self, "model_")
        if isinstance(self.model_, RankingModel):
            raise ValueError(
                f"{what}: a fit of many queries keeps no kernels; fit the images of one query alone, which gives the same bits"
            )

    @one_thread()
    def score_samples(self, X: object) -> np.ndarray:
        """Return scores of images, ``(n_samples,)``: the expected value of ``scores_`` after one step of the walk from each image.

        The warped kernel (see :meth:`kernel_block`) gives the similarity of unseen images to the training images; their prior is the mean
        prior. Their scores are on the scale of ``scores_`` and do not depend on each other. For the training store, ``scores_`` are
        returned. ``X`` are visual features in any form that ``fit`` accepts, without tags.
        """
        self._one_query("score_samples")
        if is_store(X) and self.model_.is_fitted_on(self._read(X)[0]):
            return self.scores_
        return self._unseen.scores(self._features(X))

    @one_thread()
    def kernel_block(self, rows: object = None, cols: object = None) -> np.ndarray:
        """Return a block of the kernel.

        ``rows`` and ``cols`` are integers, a slice, or ``None`` for all training images; the block then has the entries of K. If ``rows``
        or ``cols`` are visual features ``(m, n_features)``, of any images, all entries of the block are those of the warped Gaussian
        kernel.
        """
        self._one_query("kernel_block")
        if _are_row_numbers(rows) and _are_row_numbers(cols):
            return self.model_.kernel_block(self._row_numbers(rows), self._row_numbers(cols))
        fitted = self._unseen.rows
        left, right = (fitted[self._row_numbers(side)] if _are_row_numbers(side) else self._features(side) for side in (rows, cols))
        return self._unseen.kernel(left, right)

    def _row_numbers(self, rows: object) -> np.ndarray:
        n = self.model_.n_rows
        every = np.arange(n)
        if rows is None or isinstance(rows, slice):
            return every if rows is None else every[rows]
        numbers = np.atleast_1d(np.asarray(rows))
        if numbers.dtype == bool and len(numbers) == n:
            return every[numbers]
        if numbers.dtype.kind not in "iu" or (len(numbers) and not -n <= numbers.min() <= numbers.max() < n):
            raise ValueError(f"kernel_block: fitted images are numbered 0 to {n - 1}; give other images as a 2-D array of features")
        return every[numbers]

    def _features(self, X: object) -> Matrix:
        if not is_store(X):
            return self._unseen.scale_rows(self._checked(X, reset=False))
        store = self._read(X)[0]
        if store.n_cols != self.n_features_in_:
            expected = f"{type(self).__name__} is expecting {self.n_features_in_} features as input"
            raise ValueError(f"X has {store.n_cols} features, but {expected}")
        return self._unseen.scale_rows(store.columns(np.arange(store.n_cols)))

    def _set_model(self, model: RankerModel | RankingModel) -> None:
        if isinstance(model, RankingModel):
            self._set_rankings(model)
            return
        super()._set_model(model)
        self._unseen = UnseenImages(model)
        self.n_features_in_ = self._unseen.rows.shape[1]
        self.scores_, self.prior_ = model.arrays["scores"], model.arrays["prior"]
        self.pairs_, self.dual_coef_ = model.arrays["pairs"], model.arrays["alpha"]

    def _set_rankings(self, model: RankingModel) -> None:
        KernelEstimator._set_model(self, model)
        self.queries_, self.scores_ = list(model.queries), model.predictions()[:, 0]
        self.prior_ = np.empty(len(model.prior))
        self.prior_[model.lines] = model.prior
        arrays = model.arrays
        self.pairs_, self.dual_coef_ = arrays["pairs"], arrays["alpha"]
        self.objective_, self.dual_gap_ = arrays["objective"], arrays["gap"]


def _are_row_numbers(rows: UserData) -> bool:
    """Return True if the argument selects training rows, False if it gives features."""
    return rows is None or isinstance(rows, (slice, int, np.integer)) or (not is_store(rows) and np.ndim(rows) == 1)


class VisualRank(Estimator):
    r"""Scores by a random walk on a given similarity, :math:`r = \lambda S r + (1 - \lambda) \pi`.

    :math:`\lambda` is the ``damping``. S has the positive entries of the similarity, scaled so that columns sum to 1. Negative entries
    count as 0, and a column without a positive entry is uniform. A store that does not fit in the memory of this process is multiplied by
    stripes of columns, one per task of a pass.

    Parameters
    ----------
    damping : float >= 0 and < 1, default=0.85
        Share of a score that comes from similar rows; the rest comes from the prior.
    diagonal : {"auto", "zero", "keep"}, default='auto'
        Whether a row counts as similar to itself. ``"auto"``: only if the matrix has no negative entry and its columns sum to 1.
    solver : {"power", "exact"}, default='power'
        ``"power"``: power iteration, at most log(tol) / log(damping) products. ``"exact"``: one factorisation of the matrix.
    tol : float >= 1e-14 and < 1, default=1e-10
        Stopping tolerance of the power iteration: l1 norm of the change of the scores.
    max_iter : int >= 1 or None, default=None
        Largest number of matrix products; a warning is issued if the fit ends at this limit. Default: as many as ``tol`` can require, so
        that the iteration always converges.
    cluster : str or None, default=None
        Where passes over a store run, if the store does not fit in the memory of this process. Passes over an array are not distributed.
    random_state : int, RandomState or None, default=None
        Not used; the method is deterministic.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and remaining time in a terminal or notebook, else one line per round. 2
        also sends every event to the logger ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or list of functions, called with an event record after each step.

    Attributes
    ----------
    scores_, prior_
        ``(n_samples,)`` scores that sum to 1, and ``(n_samples,)`` prior :math:`\pi`.
    n_iter_, converged_, stop_reason_, error_bound_
        Number of products with S, whether ``tol`` was reached, the reason for stopping, and a bound of the l1 distance of the scores from
        the exact ones, apart from rounding.
    history_
        One array per quantity, over the steps.

    Examples
    --------
    >>> from gramplane import VisualRank
    >>> VisualRank().fit(
    ...     [[1.0, 0.8, 0.1], [0.8, 1.0, 0.5], [0.1, 0.5, 1.0]]
    ... ).rank().tolist()
    [1, 0, 2]

    References
    ----------
    Jing, Baluja: VisualRank, IEEE TPAMI 30, 2008; Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), section 6.2.
    """

    _method = WalkMethod()

    def __init__(
        self,
        damping: float = 0.85,
        diagonal: Literal["auto", "zero", "keep"] = "auto",
        solver: Literal["power", "exact"] = "power",
        tol: float = 1e-10,
        max_iter: int | None = None,
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.damping = damping
        self.diagonal = diagonal
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise, tags.input_tags.sparse = True, True
        return tags

    def fit(self, similarity: object, prior: ArrayLike | None = None) -> Self:
        """Score the rows of a similarity or kernel matrix.

        Parameters
        ----------
        similarity
            ``(n_samples, n_samples)`` array, sparse matrix, or block store.
        prior
            ``(n_samples,)`` non-negative numbers, such as scores of a text search. Default: the weights of a store's rows, else uniform.

        Raises
        ------
        ValueError
            Parameter out of range, matrix not square or not finite, or prior with a negative entry.
        """
        config = self._config()
        matrix, _ = as_data(square_in_memory(similarity, "similarity"), estimator=self, accept_sparse="csr", dtype=NUMBERS)
        if is_store(matrix):
            data: BlockStore | MemoryBlocks = matrix
            self.n_features_in_ = data.n_cols
        else:
            if matrix.shape[0] != matrix.shape[1]:
                raise ValueError(f"similarity: shape {matrix.shape}; it must be square, (n_samples, n_samples)")
            data = MemoryBlocks(matrix)
        self._fit(WalkInputs.read(data, in_memory(prior, "prior")), config)
        return self

    @contextlib.contextmanager
    def _context(self, data: DataSet) -> Iterator[RunContext]:
        if isinstance(data, MemoryBlocks):
            # A matrix in memory serves where it lies.
            seed = seed_of(self.random_state)
            with self._shown() as shown, fit_context(data, "sync", fan_out(self.callbacks, self.verbose, shown), seed, shown) as ctx:
                yield replace(ctx, doubt=warn_user)
            return
        with super()._context(data) as ctx:
            yield ctx

    def rank(self, k: int | None = None) -> np.ndarray:
        """Return the rows in descending order of score, the first ``k`` or all; ties keep the order of rows."""
        check_is_fitted(self, "scores_")
        return rank_rows(self.scores_)[:k]

    def _set_model(self, model: RankingModel) -> None:
        super()._set_model(model)
        self.scores_, self.prior_ = model.scores, model.prior
        self.n_iter_, self.error_bound_ = int(model.figures["iterations"]), model.figures["gap"]
        self.converged_ = bool(model.figures["converged"])

    @classmethod
    def _model_params(cls, model: RankingModel, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return json.loads(model.config_json)
