"""SocialStrengthRanker: the strength of ties between users, learnt from some pairs and several similarities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ....kernels.jit import one_thread
from ....storage import BlockStore, MemoryBlocks
from ....storage.data import as_grams, column_numbers, in_memory, is_store
from ....storage.errors import SparseMatrix
from ...estimators.inputs import Callbacks, Seed, fan_out, fit_context, warn_user
from ...estimators.kernels import KernelEstimator, UserKernels
from ...grams.given import SYMMETRIC, GivenGrams, as_stack
from . import scores as scoring
from .links import read_links
from .method import Social
from .model import SocialModel, new_user_scores, users_of
from .problem import SocialInputs
from .recommend import LABEL_STEPS, LABEL_TOL, spread_here, spread_labels
from .tile_pass import is_similarity


class SocialStrengthRanker(KernelEstimator):
    r"""Strength of the tie between two users, from several similarities of users and pairs known to be linked or not.

    The similarities (views) are made comparable and summed with weights that align the sum with the links; then

    .. math::

        \min_a \frac1N \sum_i \ln\big(1 + e^{-y_i f_i}\big) + \frac C2 a' K_p a, \qquad f = K_p a, \quad y = 2z - 1,

    is solved over the N training pairs, :math:`K_p` a kernel of pairs. The strength of a tie is :math:`1/(1 + e^{-f})`.

    Parameters
    ----------
    C : float > 0, default=1.0
        Weight of the norm, C/2 ||w||^2 beside the mean loss: a larger C is a plainer model; scikit-learn's C is 1 / (C N) of N pairs.
    pair_kernel : {"similarity", "difference", "mlpk", "tensor", "tensor-symmetric"}, default='similarity'
        Kernel of pairs of users: similarity (a weighted sum of the views at u, v and an offset), difference (the thesis', which gives every
        user the same order of candidates), mlpk (its square), tensor (directed), tensor-symmetric.
    weights : {"kta", "uniform"}, default='kta'
        Weights of the views: by alignment with the links, or equal ones.
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default='precomputed'
        Views as short texts of kernels, or given as matrices; null: Gaussians and polynomials.
    alignment : {"unit", "off-diagonal"}, default='unit'
        Diagonal of the links: ones, as the views have, or left out of all inner products.
    normalize : {"row_max", "cosine", "none"}, default='row_max'
        Views before use: rows divided by their largest entry, or cosines, shifted to be positive semi-definite; none takes them as they
        are, which must be positive semi-definite then.
    view_scale : float > 0, default=10.0
        Size of the views against the offset, in pair_kernel=similarity.
    n_import : int >= 1 or None, default=None
        Pairs that the model may keep at most, chosen one after the other (import vectors); default: all.
    import_tol : float > 0, default=0.001
        Relative decrease of the objective at which no more pairs are chosen.
    n_candidates : int >= 1 or None, default=59
        Pairs that are tried in every choice, drawn at random; null: all.
    tol : float > 0, default=1e-06
        Gap at which the fit ends, relative to the objective; Newton steps are halved where it would rise.
    max_iter : int >= 1, default=100
        Newton steps at most; a warning says when they end the fit.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where the matrices of the views lie; auto decides from sizes.
    gram_store : str or None, default=None
        Path of a Gram store, kept for further fits.
    cluster : str or None, default=None
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."``.
    random_state : int, RandomState or None, default=None
        Of the candidates.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and time left on a terminal or in a notebook, elsewhere a line per round;
        2 also sends every event to the log ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or several, called with an event record per step.

    Attributes
    ----------
    kernel_weights_
        ``(n_views,)`` weights, sum one.
    alignment_, alignments_
        Alignment of the weighted sum with the links, and ``(n_views,)`` of every view.
    pairs_, coef_
        ``(m, 2)`` pairs with a coefficient (the import vectors, or all), and ``(m,)`` a.
    objective_, dual_gap_
        Objective, and how far it is above the least over all training pairs at most.
    n_iter_, converged_, stop_reason_, history_
        Steps, whether the fit ended by itself, what ended it, and one array per figure over the steps.
    encoding_ : Pipeline
        Of a frame with columns that are not all numbers, and of a store made of a table: scikit-learn's encoders, fitted, from the
        columns to the features; else not there.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import SocialStrengthRanker
    >>> interests = np.array([[3, 1, 0], [2, 1, 0], [3, 2, 1], [0, 1, 3], [0, 2, 3], [1, 0, 2]])
    >>> items = np.array([[1, 0, 2], [1, 1, 2], [0, 1, 2], [2, 0, 1], [2, 1, 0], [1, 2, 0]])
    >>> views = [interests @ interests.T, items @ items.T]
    >>> ties = SocialStrengthRanker().fit(views, [[0, 1], [0, 2], [3, 4], [0, 3], [1, 4], [2, 5]], [1, 1, 1, 0, 0, 0])
    >>> ties.recommend(1, 2).tolist()
    [2, 0]

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 7. Its labels ``1 - z`` are read as ``2z - 1``.
    """

    _method = Social()
    model_: SocialModel  # pyright: ignore[reportIncompatibleVariableOverride]
    normalize: str

    def __init__(
        self,
        C: float = 1.0,
        pair_kernel: Literal["similarity", "difference", "mlpk", "tensor", "tensor-symmetric"] = "similarity",
        weights: Literal["kta", "uniform"] = "kta",
        kernels: UserKernels = "precomputed",
        alignment: Literal["unit", "off-diagonal"] = "unit",
        normalize: Literal["row_max", "cosine", "none"] = "row_max",
        view_scale: float = 10.0,
        n_import: int | None = None,
        import_tol: float = 0.001,
        n_candidates: int | None = 59,
        tol: float = 1e-06,
        max_iter: int = 100,
        grams: Literal["auto", "memory", "store", "recompute"] = "auto",
        gram_store: str | None = None,
        cluster: str | None = None,
        random_state: Seed = None,
        verbose: int = 0,
        callbacks: Callbacks = None,
    ) -> None:
        self.C = C
        self.pair_kernel = pair_kernel
        self.weights = weights
        self.kernels = kernels
        self.alignment = alignment
        self.normalize = normalize
        self.view_scale = view_scale
        self.n_import = n_import
        self.import_tol = import_tol
        self.n_candidates = n_candidates
        self.tol = tol
        self.max_iter = max_iter
        self.grams = grams
        self.gram_store = gram_store
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def fit(self, kernels: object, pairs: ArrayLike, z: ArrayLike, target: object = None) -> Self:
        """Weigh the views and learn to rank.

        Parameters
        ----------
        kernels
            ``(n_views, n_users, n_users)`` symmetric similarities, a list of them, or a Gram store; a list of sparse ones, or a sparse
            block store with such columns side by side, are read block by block; with ``kernels=[...]`` the users' features
            ``(n_users, n_features)`` in any form.
        pairs
            ``(n_pairs, 2)`` users.
        z
            ``(n_pairs,)`` 1 for a linked pair, 0 for one that is not.
        target
            ``(n_users, n_users)`` links that the views are aligned with, dense or sparse, real numbers too (the kernel of joint groups); by
            default those of the pairs. Users that no pair and no link names are left out of the alignment.

        Raises
        ------
        ValueError
            Pairs or similarities that are none, a user whose row is zero in every view, no view that is aligned with the links.
        """
        data, _ = self._data(kernels)
        ends, labels = _pair_table(pairs), np.asarray(in_memory(z, "z"))
        if labels.shape != ends.shape[:1]:
            raise ValueError(f"z has shape {labels.shape}; there are {len(ends)} pairs")
        links = read_links(np.column_stack([ends, labels]), data.n_rows, in_memory(target, "target"))
        self._fit(SocialInputs(data, links))
        return self

    def _matrices(self, X: object, y: ArrayLike | None) -> tuple[Any, Any]:
        if sparse := _sparse_views(X):
            data = MemoryBlocks(sp.csc_array(sp.hstack(sparse)))
            self.n_features_in_ = data.n_rows
            return data, y
        if isinstance(X, BlockStore):
            data = self._read(X)[0]
            if not is_similarity(data):
                raise ValueError(f"{data.url}: kernels='precomputed' takes a sparse store with n columns for every view, or a Gram store")
            self.n_features_in_ = data.n_rows
            return data, y
        # Views that are not shifted must be positive semi-definite themselves.
        data = GivenGrams(as_grams(X, "kernels"), definite=self.normalize == "none")
        self.n_features_in_ = data.n_rows
        return data, y

    def _set_model(self, model: SocialModel) -> None:
        super()._set_model(model)
        self.kernel_weights_ = model.theta / model.theta.sum()
        self.alignment_, self.alignments_ = model.figures["alignment"], model.arrays["singles"]
        self.pairs_, self.coef_ = model.pairs, model.coef
        self.objective_, self.dual_gap_ = model.figures["objective"], model.figures["gap"]

    @one_thread()
    def decision_function(self, pairs: ArrayLike | BlockStore) -> np.ndarray:
        """Return f of pairs of users ``(m, 2)``, ``(m,)``; above 0 speaks for a link.

        A block store of users takes the place of pairs, where the views are kernels over features: all its users against all of the
        model's, ``(n_rows, n_users)``, as users who were not there.
        """
        check_is_fitted(self, "model_")
        if is_store(pairs):
            with fit_context(self._read(pairs)[0], None, fan_out(None, 0), 0) as ctx:
                return self.model_.decision_values(ctx.data, ctx)
        table = _pair_table(pairs)
        self._users(table.ravel())
        return scoring.pair_scores(self.model_, table.astype(np.int64))

    def predict_proba(self, pairs: ArrayLike | BlockStore) -> np.ndarray:
        """Return the strengths ``1 / (1 + exp(-f))`` of pairs of users ``(m, 2)``, ``(m,)``."""
        return scoring.tie_strengths(self.decision_function(pairs))

    def predict(self, pairs: ArrayLike | BlockStore) -> np.ndarray:
        """Return 1 for pairs that are rather linked than not, else 0, ``(m,)``."""
        return (self.decision_function(pairs) > 0).astype(np.int64)

    @one_thread()
    def score_users(self, users: ArrayLike, *, direct: bool = False) -> np.ndarray:
        """Return f(u, v) of some users u and all users v, ``(len(users), n_users)``.

        ``direct`` gives the weighted sum of the views instead, without learning to rank: the baseline to beat.
        """
        check_is_fitted(self, "model_")
        score = scoring.direct_scores(self.model_) if direct else scoring.user_scores(self.model_)
        return score(self._users(users))

    @one_thread()
    def score_new_users(self, kernels: ArrayLike, diagonals: ArrayLike | None = None) -> np.ndarray:
        """Return f(x, v) of users x who were not there and all users v, ``(n_new, n_users)``.

        Parameters
        ----------
        kernels
            ``(n_views, n_new, n_users)`` raw similarities.
        diagonals
            ``(n_views, n_new)`` raw similarities of the new users with themselves, which count for the maxima of their rows; needed with
            ``normalize="cosine"``.
        """
        check_is_fitted(self, "model_")
        stack, k, n = as_stack(in_memory(kernels, "kernels")), len(self.model_.theta), self.model_.n_train
        if stack.shape[0] != k or stack.shape[2] != n or not np.isfinite(stack).all():
            raise ValueError(f"kernels have shape {stack.shape}; the model needs ({k}, n_new, {n}), finite")
        with_self = None if diagonals is None else np.asarray(diagonals, np.float64)
        if with_self is not None and with_self.shape != stack.shape[:2]:
            raise ValueError(f"diagonals have shape {with_self.shape}; they must be {stack.shape[:2]}")
        return new_user_scores(self.model_, stack, with_self)

    def recommend(self, user: int, k: int = 10, *, exclude: Sequence[int] | np.ndarray = (), direct: bool = False) -> np.ndarray:
        """Return the k users of strongest tie with a user, strongest first, never the user himself, ``(k,)`` or fewer.

        Parameters
        ----------
        user, k
            Row number, and candidates wanted.
        exclude
            Users to leave out, such as present contacts.
        direct
            Sort by the weighted sum of the views instead.
        """
        values = self.score_users([user], direct=direct)[0]
        return scoring.top_ranked(
            values, np.append(np.asarray(column_numbers(exclude, self._n_users(), "exclude"), np.int64), user), _positive_int("k", k)
        )

    @one_thread()
    def recommend_groups(
        self, user: int, membership: object, k: int = 10, *, score: Literal["decision", "probability"] = "decision", n_popular: int = 1000
    ) -> np.ndarray:
        """Return the k groups whose members have the strongest ties with a user, ``(k,)`` or fewer; groups joined already are left out.

        Parameters
        ----------
        user
            Row number.
        membership
            ``(n_users, n_groups)`` not zero for a member, dense or sparse.
        k
            Groups wanted.
        score
            What is summed over the members: f, or the strengths, which are not negative.
        n_popular
            Only this many groups with the most members are candidates.
        """
        members: SparseMatrix = sp.csr_array(in_memory(membership, "membership"))
        if members.ndim != 2 or members.shape[0] != self._n_users():
            raise ValueError(f"membership has shape {members.shape}; it must be ({self._n_users()}, n_groups)")
        members.eliminate_zeros()
        ones: SparseMatrix = sp.csr_array((np.ones(members.nnz), members.indices, members.indptr), shape=members.shape)
        values = self.score_users([user])[0]
        totals = ones.T @ (scoring.tie_strengths(values) if score == "probability" else values)
        others = np.setdiff1d(np.arange(ones.shape[1]), scoring.largest_groups(ones, _positive_int("n_popular", n_popular)))
        joined = ones.indices[slice(*ones.indptr[user : user + 2])]
        return scoring.top_ranked(totals, np.concatenate([joined, others]), _positive_int("k", k))

    @one_thread()
    def label_users(self, labels: ArrayLike, *, tol: float = LABEL_TOL, max_iter: int = LABEL_STEPS) -> np.ndarray:
        """Return labels of all users by the harmonic function on the strengths of ties; given ones stay.

        Parameters
        ----------
        labels
            ``(n_users,)`` numbers, such as 0 and 1, NaN where unknown (the answer above 0.5 speaks for 1); or ``(n_users, m)``.
        tol, max_iter
            Certified error of the values at which the steps end, and steps at most, with a warning; of a model that holds its matrices
            neither: its system is factorised.
        """
        n = self._n_users()
        values = np.asarray(in_memory(labels, "labels"), np.float64)
        if values.shape[:1] != (n,):
            raise ValueError(f"labels have shape {values.shape}; there are {n} users")
        if not self.model_.by_blocks:
            return spread_here(self.model_, values)
        data = users_of(self.model_)
        place = self.cluster if isinstance(data, BlockStore) else "sync"
        with fit_context(data, place, fan_out(None, 0), 0) as ctx:
            fit = spread_labels(self.model_, data, ctx, values.reshape(n, -1), tol=tol, max_iter=max_iter)
        if not fit.converged:
            warn_user(
                f"max_iter={max_iter} ended the labels with an error of {fit.error:.1e}; tol={tol:g} was asked for", ConvergenceWarning
            )
        return fit.values.reshape(values.shape)

    def _n_users(self) -> int:
        check_is_fitted(self, "model_")
        return self.model_.n_train

    def _users(self, users: ArrayLike) -> np.ndarray:
        rows = np.atleast_1d(np.asarray(users))
        n = self._n_users()
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or (rows.size and not (rows.min() >= 0 and rows.max() < n)):
            raise ValueError(f"users={users!r}: must be row numbers from 0 to {n - 1}")
        return rows.astype(np.int64)


def _sparse_views(X: object) -> list[Any]:
    """Return sparse similarities, one or a list of them, or nothing. ValueError: one is not square, symmetric or finite, by number."""
    given: list[Any] = list(X) if isinstance(X, (list, tuple)) else [X]
    if not given or not all(map(sp.issparse, given)):
        return []
    views: list[Any] = [sp.csc_array(in_memory(view, f"view {q}")) for q, view in enumerate(given)]
    n = views[0].shape[0]
    for q, view in enumerate(views):
        if view.shape != (n, n):
            raise ValueError(f"view {q} has shape {view.shape}; sparse similarities are (n_users, n_users), all of one size, here {n}")
        if not np.isfinite(view.data).all():
            raise ValueError(f"view {q} holds NaN or infinity")
        if abs(view - view.T).max() > SYMMETRIC * abs(view).max():
            raise ValueError(f"view {q} is not symmetric")
    return views


def _pair_table(pairs: object) -> np.ndarray:
    table = np.asarray(in_memory(pairs, "pairs"))
    if table.ndim != 2 or table.shape[1:] != (2,):
        raise ValueError(f"pairs have shape {table.shape}; they must be (n_pairs, 2)")
    return table


def _positive_int(name: str, value: object) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}: must be a whole number of at least 1")
    return int(value)
