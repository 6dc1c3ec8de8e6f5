"""SocialStrengthRanker: strengths of ties between users, learnt from several similarities and some labelled pairs."""

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
    r"""Strengths of ties between users, learnt from several similarities of users and from pairs known to be linked or not.

    The similarities (views) are normalised and summed with weights that align the sum with the links. Then

    .. math::

        \min_a \frac1N \sum_i \ln\big(1 + e^{-y_i f_i}\big) + \frac C2 a' K_p a, \qquad f = K_p a, \quad y = 2z - 1,

    is solved over the N training pairs, with a kernel :math:`K_p` between pairs. The strength of a tie is :math:`1/(1 + e^{-f})`.

    Parameters
    ----------
    C : float > 0, default=1.0
        Regularisation strength: weight of the norm, C/2 ||w||^2, beside the mean loss. Larger values give a simpler model. For N pairs,
        ``C`` of scikit-learn is 1 / (C N).
    pair_kernel : {"similarity", "difference", "mlpk", "tensor", "tensor-symmetric"}, default='similarity'
        Kernel between pairs of users. ``"similarity"``: a weighted sum of the views at (u, v) and an offset. ``"difference"``: as in the
        thesis; it ranks the candidates in the same order for every user. ``"mlpk"``: the square of ``"difference"``. ``"tensor"``: for
        directed links. ``"tensor-symmetric"``: for undirected links.
    weights : {"kta", "uniform"}, default='kta'
        Weights of the views: by alignment with the links (``"kta"``), or equal.
    kernels : list of KernelSpec, str or callable, or "precomputed", or None, default='precomputed'
        Views: kernel expressions, or ``"precomputed"`` for given matrices. ``None``: Gaussians and polynomials.
    alignment : {"unit", "off-diagonal"}, default='unit'
        Diagonal of the matrix of links in the alignment. ``"unit"``: ones, as in the views. ``"off-diagonal"``: diagonals are excluded from
        all inner products.
    normalize : {"row_max", "cosine", "none"}, default='row_max'
        Normalisation of the views: rows divided by their largest entry, or cosines; both are shifted to be positive semi-definite.
        ``"none"`` uses the views as given, which must then be positive semi-definite.
    view_scale : float > 0, default=10.0
        Weight of the views relative to the offset, with ``pair_kernel="similarity"``.
    n_import : int >= 1 or None, default=None
        Largest number of pairs that the model keeps, chosen one at a time (import vectors). Default: all pairs.
    import_tol : float > 0, default=0.001
        Stop choosing pairs when the relative decrease of the objective falls below this value.
    n_candidates : int >= 1 or None, default=59
        Number of random candidate pairs for every choice. ``None``: all pairs.
    tol : float > 0, default=1e-06
        Stopping tolerance: duality gap relative to the objective. A Newton step that would increase the objective is halved.
    max_iter : int >= 1, default=100
        Largest number of Newton steps; a warning is issued if the fit ends at this limit.
    grams : {"auto", "memory", "store", "recompute"}, default='auto'
        Where the matrices of the views are kept: ``"memory"``, ``"store"`` (at ``gram_store``), or ``"recompute"`` for nowhere. ``"auto"``
        decides by their size.
    gram_store : str or None, default=None
        Path of a Gram store; it is kept for further fits.
    cluster : str or None, default=None
        Where passes run: ``None`` in this process, ``"local:4"`` on four local processes, ``"tls://..."`` on a Dask cluster.
    random_state : int, RandomState or None, default=None
        Seed of the random choice of candidates; ``None`` is 0, so that fits are reproducible.
    verbose : int, default=0
        1 shows progress on standard error: a bar with rounds, gap and remaining time in a terminal or notebook, else one line per round. 2
        also sends every event to the logger ``gramplane``.
    callbacks : callable, list of callables or None, default=None
        Function, or list of functions, called with an event record after each step.

    Attributes
    ----------
    kernel_weights_
        ``(n_views,)`` weights that sum to 1.
    alignment_, alignments_
        Alignment of the weighted sum with the links, and ``(n_views,)`` alignment of every view with the links.
    pairs_, coef_
        ``(m, 2)`` pairs with a coefficient (the import vectors, or all pairs), and ``(m,)`` coefficients a.
    objective_, dual_gap_
        Objective, and an upper bound of its distance to the minimum over all training pairs.
    n_iter_, converged_, stop_reason_, history_
        Number of steps, whether the fit converged, the reason for stopping, and one array per quantity over the steps.
    encoding_ : Pipeline
        Fitted scikit-learn encoders from the columns to the features. Present only for a data frame with columns that are not numbers, or a
        store made from a table.

    Examples
    --------
    >>> import numpy as np
    >>> from gramplane import SocialStrengthRanker
    >>> interests = np.array(
    ...     [[3, 1, 0], [2, 1, 0], [3, 2, 1], [0, 1, 3], [0, 2, 3], [1, 0, 2]]
    ... )
    >>> items = np.array(
    ...     [[1, 0, 2], [1, 1, 2], [0, 1, 2], [2, 0, 1], [2, 1, 0], [1, 2, 0]]
    ... )
    >>> views = [interests @ interests.T, items @ items.T]
    >>> ties = SocialStrengthRanker().fit(
    ...     views,
    ...     [[0, 1], [0, 2], [3, 4], [0, 3], [1, 4], [2, 5]],
    ...     [1, 1, 1, 0, 0, 0],
    ... )
    >>> ties.recommend(1, 2).tolist()
    [2, 0]

    References
    ----------
    Zhuang: Kernel learning (thesis, Nanyang Technological University, 2011), chapter 7; its labels ``1 - z`` are corrected to ``2z - 1``.
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
        """Learn the weights of the views and the ranking function.

        Parameters
        ----------
        kernels
            ``(n_views, n_users, n_users)`` symmetric similarities, a list of them, or a Gram store. Sparse matrices in a list, or side by
            side as columns of a sparse block store, are read block by block. With ``kernels=[...]``: features of the users, ``(n_users,
            n_features)``, in any form.
        pairs
            ``(n_pairs, 2)`` row numbers of users.
        z
            ``(n_pairs,)`` 1 for a linked pair, 0 for one without a link.
        target
            ``(n_users, n_users)`` links with which the views are aligned, dense or sparse; real numbers are allowed (the kernel of joint
            groups). Default: the links of the pairs. Users without a pair or link are excluded from the alignment.

        Raises
        ------
        ValueError
            Invalid pairs or similarities, a user whose row is zero in every view, or no view with a positive alignment.
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
                raise ValueError(
                    f"{data.url}: kernels='precomputed' needs a sparse store with one column per view and user, or a Gram store"
                )
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
        """Return f of pairs of users ``(m, 2)``, as an array ``(m,)``. Positive values predict a link.

        If the views are kernels over features, ``pairs`` may be a block store of new users instead. The result then has f(x, v) of all new
        users x and all users v of the model, ``(n_rows, n_users)``.
        """
        check_is_fitted(self, "model_")
        if is_store(pairs):
            with fit_context(self._read(pairs)[0], None, fan_out(None, 0), 0) as ctx:
                return self.model_.decision_values(ctx.data, ctx)
        table = _pair_table(pairs)
        self._users(table.ravel())
        return scoring.pair_scores(self.model_, table.astype(np.int64))

    def predict_proba(self, pairs: ArrayLike | BlockStore) -> np.ndarray:
        """Return the strengths ``1 / (1 + exp(-f))`` of pairs of users ``(m, 2)``, as an array ``(m,)``."""
        return scoring.tie_strengths(self.decision_function(pairs))

    def predict(self, pairs: ArrayLike | BlockStore) -> np.ndarray:
        """Return 1 for pairs with f > 0 (predicted links), else 0, ``(m,)``."""
        return (self.decision_function(pairs) > 0).astype(np.int64)

    @one_thread()
    def score_users(self, users: ArrayLike, *, direct: bool = False) -> np.ndarray:
        """Return f(u, v) of the given users u and all users v, ``(len(users), n_users)``.

        ``direct`` returns the weighted sum of the views instead, a baseline without learning to rank.
        """
        check_is_fitted(self, "model_")
        score = scoring.direct_scores(self.model_) if direct else scoring.user_scores(self.model_)
        return score(self._users(users))

    @one_thread()
    def score_new_users(self, kernels: ArrayLike, diagonals: ArrayLike | None = None) -> np.ndarray:
        """Return f(x, v) of new users x and all users v of the fit, ``(n_new, n_users)``.

        Parameters
        ----------
        kernels
            ``(n_views, n_new, n_users)`` raw similarities.
        diagonals
            ``(n_views, n_new)`` raw similarities of the new users with themselves. They count in the maxima of the rows and are required
            with ``normalize="cosine"``.
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
        """Return the k users with the strongest ties to a user, strongest first, ``(k,)`` or fewer. The user is never included.

        Parameters
        ----------
        user, k
            Row number of the user, and number of candidates to return.
        exclude
            Users to leave out, such as present contacts.
        direct
            Sort by the weighted sum of the views instead of the model's scores.
        """
        values = self.score_users([user], direct=direct)[0]
        return scoring.top_ranked(
            values, np.append(np.asarray(column_numbers(exclude, self._n_users(), "exclude"), np.int64), user), _positive_int("k", k)
        )

    @one_thread()
    def recommend_groups(
        self, user: int, membership: object, k: int = 10, *, score: Literal["decision", "probability"] = "decision", n_popular: int = 1000
    ) -> np.ndarray:
        """Return the k groups whose members have the strongest ties with a user, ``(k,)`` or fewer. Groups of the user are excluded.

        Parameters
        ----------
        user
            Row number of the user.
        membership
            ``(n_users, n_groups)`` matrix, non-zero for members; dense or sparse.
        k
            Number of groups to return.
        score
            Score that is summed over the members: f, or the strengths, which are non-negative.
        n_popular
            Consider only this many groups, those with the most members.
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
        """Return labels of all users by the harmonic function on the strengths of ties. Given labels do not change.

        Parameters
        ----------
        labels
            ``(n_users,)`` numbers, or ``(n_users, m)`` for m sets of labels; NaN where unknown. With labels 0 and 1, a result above 0.5
            predicts 1.
        tol, max_iter
            Stopping tolerance (certified error of the values), and largest number of steps; a warning is issued if the computation ends at
            this limit. A model that keeps its matrices ignores both, because its linear system is factorised.
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
                f"max_iter={max_iter} ended the iteration with an error of {fit.error:.1e}, above tol={tol:g}; raise max_iter",
                ConvergenceWarning,
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
    """Return the views as a list if they are sparse, else an empty list. Raises ValueError, with the number of the view, if one is not
    square, symmetric or finite, or if only some are sparse.
    """
    given: list[Any] = list(X) if isinstance(X, (list, tuple)) else [X]
    is_sparse = [sp.issparse(view) for view in given]
    if not any(is_sparse):
        return []
    if not all(is_sparse):
        raise ValueError(f"view {is_sparse.index(False)} is dense and others are sparse; give all views in one form")
    views: list[Any] = [sp.csc_array(in_memory(view, f"view {q}")) for q, view in enumerate(given)]
    n = views[0].shape[0]
    for q, view in enumerate(views):
        if view.shape != (n, n):
            raise ValueError(f"view {q} has shape {view.shape}; all sparse similarities must be (n_users, n_users), here ({n}, {n})")
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
