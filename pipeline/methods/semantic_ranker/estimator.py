"""SemanticKernelRanker and VisualRank: rankings by a random walk, on a kernel that is learnt or given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ....kernels.ranking.random_walk import exact_scores, is_stochastic, normalise_prior, rank_rows, walk_on, walk_scores
from ...estimators.inputs import OneThread, in_memory, is_store, opened_for, validated
from ...estimators.parameters import RUN_PARAMETERS, declare_parameters, method_parameters
from ...estimators.spectral import SpectralEstimator
from ...models.spectral import SpectralModel
from ...records.config import make_config
from .config import VisualRankConfig
from .method import Ranker, RankerInputs
from .predict import UnseenImages, is_fitted_store


class SemanticKernelRanker(SpectralEstimator):
    r"""Re-rank the images of a query by a kernel learnt from how they look and what they are tagged with.

    Learns the kernel matrix that agrees most with the tags while visual neighbours stay near each other,

    .. math::

        \min_{K \succeq 0, \; \mathrm{tr} KK \le B} -\mathrm{tr}(K H T T' H)
        + \frac{C}{2} \sum_{(i,j) \in E} \max(0, K_{ii} + K_{jj} - 2 K_{ij} - d_{ij}^2)^2,

    and scores the images by a random walk on it, :math:`r = \lambda S r + (1 - \lambda) \pi`, :math:`\lambda` the ``damping``. T has the
    tf-idf vectors of the tags as rows, H centres, E are pairs of visual neighbours, :math:`d_{ij}^2` their squared distances over the mean
    of all pairs, so the unit of the features does not matter. S has the positive entries of K in columns with sum one. A fit is one query:
    fit several one by one.

    Attributes
    ----------
    scores_, prior_
        ``(n_samples,)`` scores, sum one, and ``(n_samples,)`` :math:`\pi`.
    pairs_, dual_coef_
        ``(n_pairs, 2)`` pairs E, and ``(n_pairs,)`` their best dual variables, which certify the objective; 0 where a distance is within
        its bound.
    objective_, dual_gap_
        Objective of the kernel and its certified distance from the optimum.
    n_iter_, converged_, history_
        Iterations, whether the gap was reached, and one array per figure over the iterations.

    Examples
    --------
    >>> from gramplane import SemanticKernelRanker
    >>> looks = [[0.0, 0.1], [0.1, 0.0], [0.2, 0.1], [3.0, 0.2], [3.1, 0.0], [0.9, 4.0]]
    >>> tags = ["duck pond", "duck pond", "duck", "toy", "toy car", "car"]
    >>> ranker = SemanticKernelRanker(n_neighbors=3).fit(looks, tags)
    >>> tags[ranker.rank()[0]]
    'toy car'

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 6.
    """

    _method = Ranker
    _run_parameters = (
        replace(RUN_PARAMETERS[0], text="Not used by the fit of one query, which takes place in this process."),
        replace(RUN_PARAMETERS[1], text="Of the eigensolver's first block; results agree within ``tol``."),
        *RUN_PARAMETERS[2:],
    )

    @property
    def _place(self) -> str:
        return "sync"

    def fit(self, X: object, tags: object = None, prior: ArrayLike | None = None) -> Self:
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
        data, _ = self._data(X)
        if tags is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None: here it is tags, those of every image")
        self._fit(RankerInputs.read(data, in_memory(tags, "tags"), in_memory(prior, "prior")))
        return self

    def _unfinished(self, state: object) -> str:
        config = self._config()
        return f"max_iter={config.max_iter} ended the fit with a relative gap above tol={config.tol:g}"

    def rank(self, k: int | None = None) -> np.ndarray:
        """Return the images by descending score, the first ``k`` or all; equal scores in the order of rows."""
        check_is_fitted(self, "model_")
        return rank_rows(self.scores_)[:k]

    def score_samples(self, X: object) -> np.ndarray:
        """Return scores of images, ``(n_samples,)``: the mean of ``scores_`` where one step of the walk leads from them.

        Unseen images are similar to the fitted ones by the warped kernel (see :meth:`kernel_block`), and have the mean prior. Their scores
        are on the scale of ``scores_`` and do not depend on each other. The fitted store itself gets ``scores_``. ``X`` are visual features
        in any form that ``fit`` takes; no tags are needed.
        """
        check_is_fitted(self, "model_")
        if is_store(X) and is_fitted_store(self.model_, opened_for(self, X)):
            return self.scores_
        return self._unseen.scores(self._features(X))

    def kernel_block(self, rows: object = None, cols: object = None) -> np.ndarray:
        """Return a block of the kernel.

        ``rows``, ``cols``: fitted images as integers, a slice, or ``None`` for all: the entries of K, if both are. Or ``(m, n_features)``
        visual features of any images: then the block is that of the warped Gaussian, for both sides.
        """
        check_is_fitted(self, "model_")
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
            raise ValueError(f"kernel_block: fitted images are numbered 0 to {n - 1}; features of others are given as a 2-D array")
        return every[numbers]

    def _features(self, X: object) -> Any:
        if not is_store(X):
            return self._unseen.scale_rows(self._checked(X, reset=False))
        store = opened_for(self, X)
        if store.n_cols != self.n_features_in_:
            expected = f"{type(self).__name__} is expecting {self.n_features_in_} features as input"
            raise ValueError(f"X has {store.n_cols} features, but {expected}")
        return self._unseen.scale_rows(store.columns(np.arange(store.n_cols)))

    def _set_model(self, model: SpectralModel) -> None:
        super()._set_model(model)
        self._unseen = UnseenImages(model)
        self.n_features_in_ = self._unseen.rows.shape[1]
        self.scores_, self.prior_ = model.arrays["scores"], model.arrays["prior"]
        self.pairs_, self.dual_coef_ = model.arrays["pairs"], model.arrays["alpha"]


def _are_row_numbers(rows: Any) -> bool:
    """Return whether rows of the fit are meant, not features."""
    return rows is None or isinstance(rows, (slice, int, np.integer)) or (not is_store(rows) and np.ndim(rows) == 1)


class VisualRank(OneThread, BaseEstimator):
    r"""Scores of images by a random walk on a given similarity, :math:`r = \lambda S r + (1 - \lambda) \pi`.

    :math:`\lambda` is the ``damping``. S has the positive entries of the similarity, in columns with sum one: what is negative counts as 0,
    and a column without a positive entry is uniform.

    Attributes
    ----------
    scores_, prior_
        ``(n_samples,)`` scores, sum one, and ``(n_samples,)`` :math:`\pi`.
    n_iter_, error_bound_
        Products with S, and a bound of the l1 distance of the scores from the exact ones, rounding aside.

    Examples
    --------
    >>> from gramplane import VisualRank
    >>> VisualRank().fit([[1.0, 0.8, 0.1], [0.8, 1.0, 0.5], [0.1, 0.5, 1.0]]).rank().tolist()
    [1, 0, 2]

    References
    ----------
    Jing, Baluja: VisualRank, IEEE TPAMI 30, 2008; Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), section 6.2.
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise, tags.input_tags.sparse = True, True
        return tags

    def fit(self, similarity: object, prior: ArrayLike | None = None) -> Self:
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
        config = make_config(VisualRankConfig, self.get_params(deep=False))
        matrix = validated(self, in_memory(similarity, "similarity"), accept_sparse="csr", dtype=[np.float64, np.float32])
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"similarity: shape {matrix.shape}; it must be square, (n_samples, n_samples)")
        self.prior_ = normalise_prior(in_memory(prior, "prior"), matrix.shape[0])
        keeps_diagonal = config.diagonal == "keep" or (config.diagonal == "auto" and is_stochastic(matrix))
        walk = walk_on(matrix, "keep" if keeps_diagonal else "zero")
        if config.solver == "exact":
            scores = exact_scores(walk, self.prior_, config.damping)
        else:
            scores = walk_scores(walk, self.prior_, config.damping, config.tol)
        self.scores_, self.n_iter_, self.error_bound_ = scores.values, scores.steps, scores.error
        return self

    def rank(self, k: int | None = None) -> np.ndarray:
        """Return the rows by descending score, the first ``k`` or all; equal scores in the order of rows."""
        check_is_fitted(self, "scores_")
        return rank_rows(self.scores_)[:k]


declare_parameters(VisualRank, method_parameters(VisualRankConfig))
