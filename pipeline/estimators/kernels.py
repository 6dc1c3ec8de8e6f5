"""Common parts of kernel estimators: forms of data, parameters, contexts, history, decision values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ...kernels.grams.spec import KernelSpec
from ...kernels.jit import one_thread
from ...storage import BlockStore, MemoryBlocks
from ...storage.blocks.tables import look
from ...storage.data import as_grams, is_store
from ...storage.errors import UserData
from ..core.result import State
from ..grams.given import GivenGrams, as_stack
from ..grams.sources import TextRows
from ..inputs.kernels import kernel_texts
from ..models.kernel import KernelModel, gram_decision_values, row_decision_values
from ..models.row_map import fit_kernel_map
from ..models.spectral import SpectralModel
from ..records.data_set import Reads
from .base import Estimator
from .frames import known_names
from .inputs import Column, UserRows, method_context
from .probabilities import LateModel

UserKernels: TypeAlias = Sequence[KernelSpec | str | Callable[..., Any]] | Literal["precomputed"] | None


class KernelEstimator(Estimator):
    """Base of kernel estimators. They take rows, strings or precomputed matrices."""

    _kernels_parameter: ClassVar[str | None] = "kernels"  # the one that says "precomputed" where matrices are given

    kernels: Any
    model_: KernelModel

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self._precomputed
        tags.input_tags.pairwise = self._precomputed
        return tags

    @property
    def _precomputed(self) -> bool:
        kernels = getattr(self, self._kernels_parameter) if self._kernels_parameter else None
        return isinstance(kernels, str) and kernels == "precomputed"

    def _plain(self, params: dict[str, Any]) -> dict[str, Any]:
        if "kernels" in params:
            params["kernels"] = kernel_texts(params["kernels"])
        return super()._plain(params)

    def fit(self, X: UserRows, y: Column = None, sample_weight: Column = None) -> Self:
        """Fit on arrays, sparse matrices, Dask arrays, strings, precomputed matrices, or a block store.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store may hold the target itself.
        y
            ``(n_samples,)`` target.
        sample_weight
            ``(n_samples,)`` multiplicities of rows: a row of weight 2 counts as two rows, a row of weight 0 as none. Weights scale ``C``
            and enter data-dependent kernel widths and traces. Folds are drawn over rows, regardless of weights.

        Raises
        ------
        ValueError
            A parameter is out of range, data are not finite, the target has one class only, or a kernel is not positive semi-definite.
        """
        config = self._config()
        self._fit(self._inputs(X, y, sample_weight, config=config), config)
        return self

    def _data(self, X: UserData, y: UserData = None) -> tuple[Any, Any]:
        """Return the data set of a fit (rows, strings, matrices or a Gram store), and the target after validation against the data set."""
        if self._precomputed:
            return self._matrices(X, y)
        if is_text(X):
            self.n_features_in_ = 0
            return TextRows(X), y
        return super()._data(X, y)

    def _blocks(self, X: object) -> MemoryBlocks:
        return MemoryBlocks(X, names=known_names(self))

    def _matrices(self, X: object, y: object) -> tuple[GivenGrams, Any]:
        data = GivenGrams(as_grams(X, estimator=self))
        self.n_features_in_ = data.n_rows
        return data, y

    def _set_model(self, model: Any) -> None:
        super()._set_model(model)
        if "converged" in model.figures:
            self.n_iter_, self.converged_ = int(model.figures["iterations"]), bool(model.figures["converged"])

    def _set_bounds(self, figures: Mapping[str, float]) -> None:
        """Set the bounds of the optimum, for methods that have both."""
        self.lower_bound_, self.upper_bound_ = figures["lower_bound"], figures["upper_bound"]
        self.objective_, self.dual_gap_ = self.upper_bound_, self.upper_bound_ - self.lower_bound_

    @classmethod
    def _model_params(cls, model: Any, params: Mapping[str, Any]) -> Mapping[str, Any]:
        # A run on a Gram store of kernels over rows ends as a model of those kernels.
        return {**params, **({"kernels": json.loads(model.params_json)["kernels"]} if "kernels" in params else {})}

    def _values(self, X: UserData) -> np.ndarray:
        """Return the decision values ``(n_samples, n_machines)`` for data in any supported form."""
        check_is_fitted(self, "model_")
        model = self.model_
        if model.precomputed:
            return gram_decision_values(model, self._test_matrices(X))
        if is_store(X):
            with self._stored(X) as (data, resources):
                return model.decision_values(data, resources)
        if is_text(X):
            return row_decision_values(model, np.array(list(X), dtype=object))
        return row_decision_values(model, model.scaled_rows(self._checked(X, reset=False)))

    def _test_matrices(self, X: object) -> np.ndarray:
        return as_stack(as_grams(X, estimator=self, reset=False))


class SpectralEstimator(KernelEstimator):
    """Base of transductive estimators."""

    _kernels_parameter = None

    model_: SpectralModel

    def kernel_block(self, rows: Any = None, cols: Any = None) -> np.ndarray:
        """Return entries of the learnt kernel, ``K[rows][:, cols]``. Arguments are indices of training rows or slices; the default is all
        rows.
        """
        check_is_fitted(self, "model_")
        left, right = (np.arange(self.model_.n_rows)[slice(None) if part is None else part] for part in (rows, cols))
        with one_thread():
            return self.model_.kernel_block(left, right)

    def _set_model(self, model: SpectralModel) -> None:
        if not isinstance(model.eigenvectors, np.ndarray):  # in tiles of the run, which end with it
            model = replace(model, eigenvectors=model.eigenvectors.read(0, model.n_rows))
        super()._set_model(model)
        self.eigenvectors_, self.eigenvalues_ = model.eigenvectors, model.eigenvalues
        self.objective_, self.dual_gap_ = model.figures["objective"], model.figures["gap"]

    @classmethod
    def _model_params(cls, model: SpectralModel, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return json.loads(model.config_json)


class MappedRows(SpectralEstimator):
    """Base of transductive estimators that give unseen rows coordinates: kernel ridge regression of those of the training rows."""

    _row_map: LateModel[KernelModel]

    @property
    def transform_error_(self) -> float:
        """Sum of the squared leave-one-out residuals of :meth:`transform`, as a share of the sum of the squared coordinates."""
        return self._fitted_map().figures["transform_error"]

    def _keep_run(self, problem: object, inputs: Reads, state: State) -> None:
        mark = inputs.data.look.mark if isinstance(inputs.data, MemoryBlocks) else None
        self._row_map = LateModel(partial(self._fit_map, inputs.data, mark))

    def _fit_map(self, data: BlockStore | MemoryBlocks, mark: bytes | None) -> KernelModel:
        if isinstance(data, MemoryBlocks) and look(data.X).mark != mark:
            raise ValueError("X was changed in place after fit, but transform learns from these rows later; fit again")
        getattr(data, "confirm", tuple)()
        with method_context(data, "sync", 0, self._takes_all_memory) as ctx:
            return fit_kernel_map(self._method.name, self._config(), self.model_, ctx.data, ctx)

    def _fitted_map(self) -> KernelModel:
        check_is_fitted(self, "model_")
        found = self._row_map.get()
        if found is None:
            raise ValueError(
                f"{type(self).__name__}: transform needs the training rows, and they are not kept in a copied or saved estimator; call "
                "transform once before copying, which keeps what it needs"
            )
        return found

    def _map_rows(self, X: UserRows) -> np.ndarray:
        check_is_fitted(self, "model_")
        # Bad rows are told before the map is fitted.
        rows = None if is_store(X) else self._checked(X, reset=False)
        found = self._fitted_map()
        if rows is not None:
            with one_thread():
                return row_decision_values(found, found.scaled_rows(rows))
        with self._stored(X) as (data, resources):
            return found.decision_values(data, resources)


def is_text(X: object) -> bool:
    """Return whether ``X`` is a list, array or data frame column of strings. A single string is a path, so the result is False."""
    if hasattr(X, "to_numpy") and len(getattr(X, "shape", ())) == 1:
        X = np.asarray(X, dtype=object)
    if isinstance(X, (list, tuple)):
        return bool(X) and all(isinstance(row, str) for row in X)
    return isinstance(X, np.ndarray) and X.ndim == 1 and X.size > 0 and X.dtype.kind in "OU" and all(isinstance(row, str) for row in X)
