"""From data and parameters to dual problems, and from their solutions to a model: what methods on kernels share."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...kernels.grams.functions import family
from ...kernels.grams.spec import KernelSpec, as_specs
from ...kernels.svm.dual import DualProblem, svc_problem, svr_problem
from ...storage import BlockStore, DataError, GramStore
from ..grams.given import GivenGrams, with_normalization
from ..grams.grams import Grams
from ..grams.settings import GramSettings
from ..grams.sources import rows_of
from ..methods.fgm.fgm_setup import FGMInputs, refuse_idle_classes, row_costs
from ..methods.fgm.model import FeatureScale
from ..models.kernel import KernelModel
from ..models.kernel_predict import spans
from ..passes.blocks import scale_of
from ..records.context import RunContext


@dataclass(frozen=True)
class KernelInputs:
    """What a fit gets beside its parameters.

    Attributes
    ----------
    data
        Block store, arrays or strings in memory, or matrices.
    target
        ``(n_samples,)`` class of each row as its index, or real numbers.
    classes
        The labels, in order; ``None`` for regression.
    sample_weight
        ``(n_samples,)`` factors of C, or ``None``.
    """

    data: Any
    target: np.ndarray
    classes: tuple[Any, ...] | None
    sample_weight: np.ndarray | None = None

    @property
    def n_machines(self) -> int:
        """One, or one per class for more than two."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)


def kernel_texts(kernels: Any) -> Any:
    """Return kernels as a parameter model holds them: ``None``, ``"precomputed"``, or a list of short texts.

    Raises
    ------
    ValueError
        A kernel that cannot be read.
    """
    if kernels is None or (isinstance(kernels, str) and kernels == "precomputed"):
        return kernels
    return [str(spec) for spec in as_specs(kernels, sys.maxsize)]


def resolved_kernels(kernels: Any, data: Any, normalize: str) -> list[Any]:
    """Return the kernels of a fit, with ``normalize`` where they leave it open.

    Raises
    ------
    ValueError
        Kernels that do not suit the data.
    """
    if isinstance(data, GivenGrams):
        if kernels != "precomputed":
            raise ValueError('kernel matrices are given as X, so kernels must be "precomputed"')
        return with_normalization(data.kernels(), normalize)
    if isinstance(kernels, str):
        raise ValueError('kernels="precomputed" needs matrices (n_kernels, n, n), or a Gram store')
    specs = as_specs(kernels, data.n_cols or None)
    check_rows(specs, data)
    return with_normalization(specs, normalize)


def check_rows(specs: Sequence[KernelSpec], data: Any) -> None:
    """Refuse kernels of strings on numbers and the other way round, and those of values >= 0 on a store that has smaller ones.

    Raises
    ------
    DataError
        The kernel is named.
    """
    held = "numbers" if data.n_cols else "strings"
    lowest = _lowest(data) if any(family(spec.name).rows == "non-negative" for spec in specs) else None
    for spec in specs:
        needed = family(spec.name).rows
        if needed != "any" and (needed == "strings") != (held == "strings"):
            place = "" if data.url == "memory" else data.url
            raise DataError(f"kernel {spec} reads {needed}; the data set holds {held}", place)
        if needed != "non-negative" or lowest is None:
            continue
        columns = np.arange(data.n_cols) if spec.columns is None else np.array(spec.columns)
        worst = columns[lowest[columns].argmin()]
        if lowest[worst] < 0:
            scaled = "" if data.scale.kind == "none" else f" (scaled: {data.scale.kind})"
            raise DataError(f"kernel {spec} needs values >= 0; column {worst} goes down to {lowest[worst]:.6g}{scaled}", data.url)


def _lowest(data: Any) -> np.ndarray | None:
    """Return the least value of every column of a store as kernels read it; data in memory are looked at by the kernels themselves."""
    if not isinstance(data, BlockStore) or not data.n_cols:
        return None
    scale, lowest = data.scale, np.asarray(data.column_table("minimum"), np.float64)
    lowest = lowest if scale.shift is None else lowest - scale.shift
    return lowest if scale.factor is None else lowest * scale.factor


def with_gram_store(config: Any, inputs: KernelInputs, *, definite: bool = True) -> tuple[Any, KernelInputs]:
    """Return parameters and inputs of a run whose kernels are those of a Gram store (``kernels="precomputed"``).

    Kernels that were computed from the rows become the kernels of the run, which then predicts on other rows; matrices that were computed
    elsewhere take the place of the data; they must be positive semi-definite where ``definite`` says so.

    Raises
    ------
    ValueError
        No Gram store is named.
    DataError
        It belongs to other data.
    """
    if config.kernels != "precomputed":
        return config, inputs
    if config.gram_store is None:
        raise ValueError("kernels='precomputed' needs gram_store, the Gram store of these rows (--grams)")
    store, data = GramStore.open(config.gram_store), inputs.data
    if store.n != data.n_rows:
        raise DataError(f"it holds matrices of {store.n} rows; {data.url} has {data.n_rows}", config.gram_store)
    records = [store.describe(digest) for digest in store.kernels]
    if any(record.get("name") == "precomputed" for record in records):
        return config, replace(inputs, data=GivenGrams(store, definite=definite))
    if store.meta.data != data.digest:
        raise DataError(f"it holds kernels of other data than {data.url}", config.gram_store)
    texts = [str(KernelSpec.from_json(record)) for record in records]
    return config.model_copy(update={"kernels": texts, "grams": "store"}), inputs


def apart(data: Any) -> GivenGrams | None:
    """Return matrices that were given, which a loop reads in place of the run's data set; ``None`` for data sets."""
    return data if isinstance(data, GivenGrams) else None


def gram_settings(config: Any, specs: Sequence[Any], data: Any, ctx: RunContext) -> GramSettings:
    """Return where the Gram matrices of a fit lie; given ones are read where they are: there is nothing to build into a store."""
    given = apart(data)
    if given is None:
        return GramSettings.of(ctx, specs, config.grams, config.gram_store)
    return GramSettings.of(replace(ctx, data=given), specs, "auto" if config.grams == "store" else config.grams, None)


def store_inputs(ctx: RunContext, name: str) -> KernelInputs:
    """Return a store's target and weights: classes where it has labels, else real numbers.

    Raises
    ------
    DataError
        No target, or one class only.
    """
    data = ctx.data
    if not data.has_table("y"):
        raise DataError(f"there is no target; {name} needs one (ingest a file that has it; --target names its column or array)", data.url)
    weight = data.row_table("weight") if data.has_table("weight") else None
    labels = data.meta.labels
    if labels is None:
        return KernelInputs(data, data.target(), None, weight)
    codes = data.target().astype(np.int64)
    if len(np.unique(codes)) < 2:
        raise DataError(f"the target holds one class only ({labels[int(codes[0])]!r}); {name} needs at least two", data.url)
    return KernelInputs(data, codes, tuple(labels), weight)


def costs(config: Any, inputs: KernelInputs) -> np.ndarray:
    """Return ``C_i = C * sample weight * class weight``, ``(n_samples,)``."""
    if inputs.classes is not None:
        return row_costs(config, FGMInputs(inputs.data, inputs.target, inputs.classes, inputs.sample_weight))
    cost = np.full(len(inputs.target), float(config.C))
    return cost if inputs.sample_weight is None else cost * inputs.sample_weight


def labels_of(inputs: KernelInputs, machine: int) -> np.ndarray:
    """Return the labels -1 and +1 of one machine: the second class of two, or one class against the rest."""
    assert inputs.classes is not None
    return np.where(inputs.target == (1 if len(inputs.classes) == 2 else machine), 1.0, -1.0)


def dual_problems(config: Any, inputs: KernelInputs, epsilon: float = 0.1) -> list[DualProblem]:
    """Return one problem per machine: hinge for classes, epsilon-insensitive for real targets.

    Raises
    ------
    DataError
        A class without a row of positive weight.
    """
    cost = costs(config, inputs)
    if not np.any(cost > 0):
        raise DataError("no sample has a positive weight; a fit needs some")
    if inputs.classes is None:
        return [svr_problem(inputs.target, epsilon, cost)]
    refuse_idle_classes(inputs.classes, inputs.target, cost)
    return [svc_problem(labels_of(inputs, machine), cost) for machine in range(inputs.n_machines)]


# -- from solutions to a model -------------------------------------------------------------------------------------------------


def build_model(
    config: Any,
    inputs: KernelInputs,
    grams: Grams,
    theta: np.ndarray,
    beta: np.ndarray,
    intercepts: np.ndarray,
    figures: dict[str, float],
    arrays: dict[str, np.ndarray] | None = None,
) -> KernelModel:
    """Return the model of weights ``theta`` (n_machines, n_kernels) and coefficients ``beta`` (n_machines, n_samples)."""
    used = np.flatnonzero(np.any(theta != 0, axis=0))
    norms = [grams.normalizations[q] for q in used]
    centred = any(norm.row_mean is not None for norm in norms)
    # The means of a test row run over all training rows, so a centred kernel keeps them all.
    ids = np.arange(grams.n) if centred else np.flatnonzero(np.any(beta != 0, axis=0))
    rows, texts = (None, ()) if isinstance(inputs.data, GivenGrams) else support_rows_of(inputs.data, ids)
    return KernelModel(
        params_json=config.model_dump_json(),
        classes_json=json.dumps(None if inputs.classes is None else list(inputs.classes)),
        kernels_json=json.dumps([spec.to_json() for spec in grams.specs]),
        n_features=int(inputs.data.n_cols),
        n_train=grams.n,
        precomputed=isinstance(inputs.data, GivenGrams),
        theta=theta,
        used=used,
        norms=tuple(norm if norm.diag_root is None else replace(norm, diag_root=norm.diag_root[ids]) for norm in norms),
        support_ids=ids,
        rows=rows,
        texts=texts,
        beta=np.ascontiguousarray(beta[:, ids]),
        intercepts=intercepts,
        figures=figures,
        arrays=arrays or {},
        **data_scaling(inputs.data),
    )


def data_scaling(data: Any) -> dict[str, Any]:
    """Return a model's fields that tell how the features of a data set are scaled."""
    if getattr(data, "scale", None) is None or not data.n_cols:
        return {"scale": FeatureScale(), "row_scaled": False}
    return {"scale": scale_of(data, np.arange(data.n_cols)), "row_scaled": data.scale.kind == "unit-row"}


def support_rows_of(data: Any, ids: np.ndarray) -> tuple[np.ndarray | sp.csr_array | None, tuple[str, ...]]:
    """Return chosen rows (ascending ids) as kernels read them, and the texts where rows are strings."""
    parts = []
    for lo, hi in spans(data.n_rows, 4096):
        inside = ids[(ids >= lo) & (ids < hi)] - lo
        if len(inside):
            parts.append(rows_of(data, lo, hi)[inside])
    if data.n_cols == 0:
        return None, tuple(str(text) for part in parts for text in part)
    if not parts:
        return np.zeros((0, data.n_cols)), ()
    return (sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)), ()
