"""SemanticKernelRanker and VisualRank: rankings by a random walk, on a kernel that is learnt or given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ....kernels.ranking.random_walk import exact_scores, is_stochastic, normalised_prior, ranked, walk_on, walk_scores
from ...estimators.inputs import OneThread, fan_out, fit_context, in_memory, is_store, opened_for, seed_of, validated, warn_user
from ...estimators.kernels import KernelEstimator
from ...loops.run import run_loop
from ...models.spectral import SpectralModel
from ...records.validation import configured
from .config import RankerConfig, VisualRankConfig
from .method import Unseen, build_loop, model_of, prior_of, read_rows, remarks_of


class SemanticKernelRanker(KernelEstimator):
    r"""Re-rank the images of a query by a kernel learnt from how they look and what they are tagged with.

    Learns the kernel matrix that agrees most with the tags while visual neighbours stay near each other,

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} KK \le B} -\mathrm{tr}(K H T T' H)
        + \frac{C}{2} \sum_{(i,j) \in E} \max(0, K_{ii} + K_{jj} - 2 K_{ij} - d_{ij}^2)^2,

    and scores the images by a random walk on it, :math:`r = \lambda S r + (1 - \lambda) \pi`. T has the tf-idf vectors of the tags as
    rows, H centres, E are pairs of visual neighbours, :math:`d_{ij}^2` their squared distances over the mean of all pairs, so the unit of
    the features does not matter. S has the positive entries of K in columns with sum one. A fit is one query: fit several one by one.

    Parameters
    ----------
    n_neighbors
        Visual neighbours of an image.
    C
        Weight of squared excess distances.
    B
        Cap of tr KK; default: the number of images.
    damping
        :math:`\lambda`, the share of a score that comes from similar images.
    graph
        Pairs E: ``"mutual"``: both images are a neighbour of the other; ``"union"``: one of them is.
    base
        Look for a kernel on this many smooth functions of the visual neighbour graph (faster; the least eigenvectors of its Laplacian);
        default: on all functions.
    diagonal
        ``"zero"``: an image is not similar to itself in the walk; ``"keep"``.
    min_images
        Tags of fewer images are dropped.
    untagged
        Images without a tag: ``"raise"`` names them, with ``"zero"`` their tag vector is zero and only their looks count.
    gamma
        Unseen images: the kernel that is warped is ``exp(-gamma ||x - z||^2 / mean)``, with the mean squared distance of two images.
    warp
        Unseen images: ``"corrected"`` warps by the graph Laplacian of max(K, 0), ``"seed"`` by -K as the thesis prints, which is refused
        where the kernel would not be positive semidefinite.
    tol
        Relative duality gap at which the kernel is done.
    max_iter
        Eigendecompositions at most; a warning tells when they end the fit.
    walk_tol
        l1 change of the scores at which the walk ends.
    cluster
        Not used by the fit of one query, which takes place in this process.
    random_state
        Of the eigensolver's first block; results agree within ``tol``.
    verbose
        Log one line per iteration.
    callbacks
        Functions called with an event record per iteration.

    Attributes
    ----------
    scores_
        ``(n_samples,)`` scores, sum one.
    prior_
        ``(n_samples,)`` :math:`\pi`.
    eigenvectors_, eigenvalues_
        ``(n_samples, rank)`` and ``(rank,)`` of K.
    pairs_, dual_coef_
        ``(n_pairs, 2)`` pairs E, and ``(n_pairs,)`` their best dual variables, which certify the objective; 0 where a distance is within
        its bound.
    objective_, dual_gap_
        Objective of the kernel and its certified distance from the optimum.
    n_iter_, converged_, history_
        Iterations, whether the gap was reached, and one array per figure over the iterations.

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 6.
    """

    _config_type = RankerConfig
    _is_classifier = False

    def __init__(
        self,
        n_neighbors: int = 6,
        C: float = 1.0,
        B: float | None = None,
        damping: float = 0.85,
        graph: str = "mutual",
        base: int | None = None,
        diagonal: str = "zero",
        min_images: int = 1,
        untagged: str = "raise",
        gamma: float = 3.0,
        warp: str = "corrected",
        tol: float = 1e-5,
        max_iter: int = 300,
        walk_tol: float = 1e-10,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
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
    def _precomputed(self) -> bool:
        return False

    def fit(self, X: Any, tags: Any = None, prior: Any = None) -> Self:
        """Learn the kernel and score the images.

        Parameters
        ----------
        X
            ``(n_samples, n_features)`` visual features: an array, a sparse matrix, a Dask array, or a block store.
        tags
            ``(n_samples, n_tags)`` counts, sparse or dense; or per image a string of tags with blanks between, or a list of tags.
        prior
            ``(n_samples,)`` non-negative numbers, such as scores of a text search; default: the weights of a store's rows, else uniform.

        Raises
        ------
        ValueError
            A parameter out of range, data that are not finite, fewer than two images, tags that are not one per image or tell none from
            another, images without tags (their rows are named), a prior with a negative entry.
        """
        config = self._config()
        data, _ = self._data(X)
        if tags is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: here it is tags, those of every image"
            )
        with fit_context(data, "sync", fan_out(self.callbacks, self.verbose), seed_of(self.random_state)) as ctx:
            loop = build_loop(config, data, in_memory(tags, "tags"), ctx, warn_user)
            pi = prior_of(data, in_memory(prior, "prior"))
            outcome = run_loop(loop, ctx, keep=False)
            self._set_model(model_of(config, loop, outcome.state, pi, ctx))
        self._set_history(outcome.history)
        for remark in remarks_of(self.model_):
            warn_user(remark)
        self._warn_unfinished(self.converged_, f"max_iter={config.max_iter} ended the fit with a relative gap above tol={config.tol:g}")
        return self

    def rank(self, k: int | None = None) -> np.ndarray:
        """Return the images by descending score, the first ``k`` or all; equal scores in the order of rows."""
        check_is_fitted(self, "model_")
        return ranked(self.scores_)[:k]

    def score_samples(self, X: Any) -> np.ndarray:
        """Return scores of images, ``(n_samples,)``: the mean of ``scores_`` where one step of the walk leads from them.

        Unseen images are similar to the fitted ones by the warped kernel (see :meth:`kernel_block`), and have the mean prior. Their scores
        are on the scale of ``scores_`` and do not depend on each other. The fitted store itself gets ``scores_``.

        Parameters
        ----------
        X
            Visual features in any form that ``fit`` takes; no tags are needed.
        """
        check_is_fitted(self, "model_")
        if is_store(X) and self.model_.data_digest and opened_for(self, X).digest == self.model_.data_digest:
            return self.scores_
        return self._unseen().scores(self._features(X))

    def kernel_block(self, rows: Any = None, cols: Any = None) -> np.ndarray:
        """Return a block of the kernel.

        Parameters
        ----------
        rows, cols
            Fitted images as integers, a slice, or ``None`` for all: the entries of K, if both are. Or ``(m, n_features)`` visual features
            of any images: then the block is that of the warped Gaussian, for both sides.
        """
        check_is_fitted(self, "model_")
        if _are_places(rows) and _are_places(cols):
            return self.model_.kernel_block(self._places(rows), self._places(cols))
        unseen = self._unseen()
        left, right = (unseen.rows[self._places(side)] if _are_places(side) else self._features(side) for side in (rows, cols))
        return unseen.kernel(left, right)

    def _places(self, given: Any) -> np.ndarray:
        """Return numbers of fitted images."""
        n = self.model_.n_rows
        every = np.arange(n)
        if given is None or isinstance(given, slice):
            return every if given is None else every[given]
        found = np.atleast_1d(np.asarray(given))
        if found.dtype == bool and len(found) == n:
            return every[found]
        if found.dtype.kind not in "iu" or (len(found) and not -n <= found.min() <= found.max() < n):
            raise ValueError(f"kernel_block: fitted images are numbered 0 to {n - 1}; features of others are given as a 2-D array")
        return every[found]

    def _features(self, X: Any) -> Any:
        """Return rows to be compared with the fitted ones."""
        if not is_store(X):
            options: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "accept_large_sparse": False}
            return read_rows(self.model_, validated(self, X, reset=False, **options))
        store = opened_for(self, X)
        if store.n_cols != self.n_features_in_:
            raise ValueError(
                f"X has {store.n_cols} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input"
            )
        return read_rows(self.model_, store.columns(np.arange(store.n_cols)))

    def _unseen(self) -> Unseen:
        if self._held is None:
            self._held = Unseen(self.model_)
        return self._held

    def _set_model(self, model: Any) -> None:
        self.model_: SpectralModel = model
        self._held: Unseen | None = None
        self.scores_, self.prior_ = model.arrays["scores"], model.arrays["prior"]
        self.eigenvectors_, self.eigenvalues_ = model.eigenvectors, model.eigenvalues
        self.pairs_, self.dual_coef_ = model.arrays["pairs"], model.arrays["alpha"]
        self.objective_, self.dual_gap_ = model.figures["objective"], model.figures["gap"]
        self.n_iter_, self.converged_ = int(model.figures["iterations"]), bool(model.figures["converged"])

    @classmethod
    def from_model(cls, model: Any, params: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Self:
        """Return the fitted estimator of a saved model."""
        estimator = cls(**json.loads(model.config_json))
        estimator._set_model(model)
        estimator.n_features_in_ = estimator._unseen().rows.shape[1]
        estimator._set_history(list(history))
        return estimator


def _are_places(given: Any) -> bool:
    """Return whether rows of the fit are meant, not features."""
    return given is None or isinstance(given, (slice, int, np.integer)) or (not is_store(given) and np.ndim(given) == 1)


class VisualRank(OneThread, BaseEstimator):
    r"""Scores of images by a random walk on a given similarity, :math:`r = \lambda S r + (1 - \lambda) \pi`.

    S has the positive entries of the similarity, in columns with sum one: what is negative counts as 0, and a column without a positive
    entry is uniform.

    Parameters
    ----------
    damping
        :math:`\lambda`, in [0, 1).
    diagonal
        ``"zero"``: a row is not similar to itself; ``"keep"``; ``"auto"``: keep it where the matrix is an S already, with no negative entry
        and columns of sum one.
    solver
        ``"power"``: power iteration, which needs at most ``log(tol) / log(damping)`` products; ``"exact"``: one factorisation.
    tol
        l1 change of the scores at which the power iteration ends.

    Attributes
    ----------
    scores_
        ``(n_samples,)`` scores, sum one.
    prior_
        ``(n_samples,)`` :math:`\pi`.
    n_iter_
        Products with S.
    error_bound_
        Bound of the l1 distance of the scores from the exact ones, rounding aside.

    References
    ----------
    Jing, Baluja: VisualRank, IEEE TPAMI 30, 2008; Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), section 6.2.
    """

    def __init__(self, damping: float = 0.85, diagonal: str = "auto", solver: str = "power", tol: float = 1e-10) -> None:
        self.damping = damping
        self.diagonal = diagonal
        self.solver = solver
        self.tol = tol

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.pairwise, tags.input_tags.sparse = True, True
        return tags

    def fit(self, similarity: Any, prior: Any = None) -> Self:
        """Score the rows of a similarity or kernel matrix.

        Parameters
        ----------
        similarity
            ``(n_samples, n_samples)`` array or sparse matrix.
        prior
            ``(n_samples,)`` non-negative numbers, such as scores of a text search; default: uniform.

        Raises
        ------
        ValueError
            A parameter out of range, a matrix that is not square or not finite, a prior with a negative entry.
        """
        config = configured(VisualRankConfig, self.get_params(deep=False))
        found: Any = validated(self, in_memory(similarity, "similarity"), accept_sparse="csr", dtype=[np.float64, np.float32])
        if found.shape[0] != found.shape[1]:
            raise ValueError(f"similarity: shape {found.shape}; it must be square, (n_samples, n_samples)")
        self.prior_ = normalised_prior(in_memory(prior, "prior"), found.shape[0])
        keep = config.diagonal == "keep" or (config.diagonal == "auto" and is_stochastic(found))
        walk = walk_on(found, "keep" if keep else "zero")
        if config.solver == "exact":
            scores = exact_scores(walk, self.prior_, config.damping)
        else:
            scores = walk_scores(walk, self.prior_, config.damping, config.tol)
        self.scores_, self.n_iter_, self.error_bound_ = scores.values, scores.steps, scores.error
        return self

    def rank(self, k: int | None = None) -> np.ndarray:
        """Return the rows by descending score, the first ``k`` or all; equal scores in the order of rows."""
        check_is_fitted(self, "scores_")
        return ranked(self.scores_)[:k]
