"""The graph of kernels of a fit: built from the parameters, and searched for the nodes that the certificate needs. The hull of a fit is the
set of its selected nodes with all their ancestors; the searches are outside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.blocks import gram_diagonal
from ....kernels.grams.products import AnyKernel, distinct_kernels
from ....kernels.grams.spec import KernelSpec, check_columns
from ....kernels.graphs.kernel_graphs import KernelDag, KernelGrid, KernelList
from ....kernels.graphs.norms import NodeSet
from ....kernels.graphs.parsing import DEFAULT_GRAPH, parse_graph
from ....storage import DataError
from ...grams.sources import RowData, rows_of
from ...inputs.kernels import check_rows, closing_for
from ...inputs.labels import Inputs, labels_of
from ...loops.active_set import EVERYWHERE, Violations
from ...models.kernel import spans
from .config import HKLConfig
from .node_pass import NodeForms

READ_ROWS = 4096  # rows read at a time for widths and traces
CONSTANT_SHARE = 1e-10  # a feature whose deviation is below this share of its mean is constant


def resolve_graph(config: HKLConfig, inputs: Inputs, dag: KernelDag | None = None) -> KernelDag:
    """Return the graph, with its kernels validated against the data; ``dag`` is a graph that parameters cannot express. Raises ValueError
    for a kernel that does not suit the data.
    """
    data, source = inputs.data, config.dag if dag is None else dag
    has_widths = "gaussian" in (DEFAULT_GRAPH if source is None else source if isinstance(source, str) else "")
    if has_widths and not data.n_cols:
        raise DataError("the data set holds strings, but dag has Gaussian kernels of numbers; set dag to a graph of string kernels")
    if has_widths and data.n_rows < 2:
        raise DataError("n_samples = 1: the widths of Gaussian kernels are estimated from at least two rows")
    deviations = feature_deviations(data, inputs.sample_weight) if has_widths else None
    graph = parse_graph(source, config.a, data.n_cols or None, deviations, closing_for(data, inputs.counts))
    kernels = base_kernels(graph)
    for spec in kernels if data.n_cols else ():
        check_columns(spec, data.n_cols)
    check_rows(kernels, data)
    return _scale_traces(graph, data, inputs.counts) if config.normalize == "trace" else graph


def associated_features(inputs: Inputs, count: int) -> np.ndarray:
    """Return the ``count`` features, ascending, whose values or squares correlate most with the target (any class against the rest)."""
    weight = np.ones(len(inputs.target)) if inputs.sample_weight is None else inputs.sample_weight
    targets = np.stack([inputs.target if inputs.classes is None else labels_of(inputs, m) for m in range(inputs.n_machines)])
    targets = weight * (targets - np.average(targets, axis=1, weights=weight)[:, None])
    lo, mass = 0, max(float(weight.sum()), 1e-300)
    products, sums, squares = np.zeros((2, len(targets), inputs.data.n_cols)), *np.zeros((2, 2, inputs.data.n_cols))
    for part in _row_blocks(inputs.data):
        block = np.asarray(part.toarray() if sp.issparse(part) else part, np.float64)
        rows, lo = slice(lo, lo + len(block)), lo + len(block)
        for k, values in enumerate((block, block * block)):
            products[k] += targets[:, rows] @ values
            sums[k] += weight[rows] @ values
            squares[k] += weight[rows] @ (values * values)
    variances = squares - sums**2 / mass
    varies = variances > CONSTANT_SHARE * squares
    scores = np.divide(products**2, variances[:, None], out=np.zeros_like(products), where=varies[:, None])
    return np.sort(np.argsort(-scores.max(axis=(0, 1)), kind="stable")[:count])


def base_kernels(graph: KernelDag) -> list[KernelSpec]:
    """Return the kernels whose products are the kernels of the nodes."""
    if isinstance(graph, KernelGrid):
        return [spec for chain in graph.chains for spec in chain]
    if isinstance(graph, KernelList):
        return distinct_kernels(graph.kernels)
    return distinct_kernels([graph.kernel(key) for key in graph.roots()])


def feature_deviations(data: RowData, weight: np.ndarray | None = None) -> np.ndarray:
    """Return the weighted standard deviation of each scaled feature, as kernels receive it, ``(d,)``; 0 for constant features."""
    mass, mean, square, lo = 0.0, np.zeros(data.n_cols), np.zeros(data.n_cols), 0
    for part in _row_blocks(data):
        block = np.asarray(part.toarray() if sp.issparse(part) else part, np.float64)
        weights = np.ones(len(block)) if weight is None else weight[lo : lo + len(block)]
        lo, added = lo + len(block), float(weights.sum())
        if added > 0:
            centre = weights @ block / added
            shift, total = centre - mean, mass + added
            square += weights @ (block - centre) ** 2 + shift**2 * (mass * added / total)
            mean, mass = mean + shift * (added / total), total
    deviations = np.sqrt(square / max(mass, 1e-300))
    return np.where(deviations > CONSTANT_SHARE * np.abs(mean), deviations, 0.0)


def _row_blocks(data: RowData) -> Iterator[Any]:
    return (rows_of(data, lo, hi) for lo, hi in spans(data.n_rows, READ_ROWS))


def _scale_traces(graph: KernelDag, data: RowData, counts: np.ndarray | None) -> KernelDag:
    """Return the graph with kernels scaled to trace n: the factors of the products, or the nodes of a KernelList. ``counts`` are the row
    weights. Raises ValueError for other graphs than a KernelGrid or a KernelList, and for a kernel that is zero on the training rows.
    """
    if not isinstance(graph, (KernelGrid, KernelList)):
        raise ValueError(
            f"normalize='trace' needs a KernelGrid or a KernelList, not {type(graph).__name__}; scale the kernels of the graph yourself"
        )
    specs: list[AnyKernel] = list(base_kernels(graph) if isinstance(graph, KernelGrid) else graph.kernels)
    traces, lo = np.zeros(len(specs)), 0
    for part in _row_blocks(data):
        rows, lo = slice(lo, lo + part.shape[0]), lo + part.shape[0]
        diagonals = gram_diagonal(specs, part)
        traces += (diagonals if counts is None else diagonals * counts[rows]).sum(axis=1)
    if not (traces > 0).all():
        raise ValueError(
            f"kernel {specs[int(np.argmin(traces))]} has trace {traces.min():g} on the training rows, so normalize='trace' cannot scale it"
        )
    scales = iter(((data.n_rows if counts is None else counts.sum()) / traces).tolist())
    if isinstance(graph, KernelList):
        return graph.scaled(list(scales))
    return graph.scaled([[next(scales) for _ in chain] for chain in graph.chains])


MAX_SUM_WIDTH = 32  # dimensions up to which the closed form of the sum over descendants is worth its products
MAX_VISITS_WITH_VIOLATORS = 1000  # nodes visited after which a search that has found violators goes no deeper


@dataclass(frozen=True)
class FrontierSearch:
    """Searches for nodes outside the hull that violate the certificate."""

    dag: KernelDag
    max_visits: int  # nodes visited for a certificate at most

    def frontier_nodes(self, nodes: NodeSet) -> np.ndarray:
        """Return the nodes outside the hull whose parents are all inside, ``(m, width)``, ordered by their first parent in the hull."""
        n_parents: Counter[bytes] = Counter()
        children: dict[bytes, np.ndarray] = {key.tobytes(): key for key in self.dag.roots()}
        for key in nodes.keys:
            for child in self.dag.children(key):
                name = child.tobytes()
                n_parents[name] += 1
                children.setdefault(name, child)
        keys = [key for name, key in children.items() if name not in nodes.places and n_parents[name] == len(self.dag.parents(key))]
        return np.array(keys, np.int64).reshape(len(keys), self.dag.width)

    def frontier(self, nodes: NodeSet, forms: NodeForms, threshold: float) -> Violations:
        """Search the frontier alone: the nodes whose parents are all in the hull. If the frontier is empty, the search is complete."""
        keys = self.frontier_nodes(nodes)
        if not len(keys):
            return Violations(keys, np.zeros(0), 0.0, EVERYWHERE, 0)
        totals = forms.totals([self.dag.kernel(key) for key in keys])
        values = np.maximum(totals, 0.0) / self.dag.penalties(keys) ** 2
        above = values > threshold
        return Violations(keys[above], values[above], float(values.max(initial=0.0)), None, len(keys))

    def exhaustive(self, nodes: NodeSet, forms: NodeForms, threshold: float) -> Violations:
        """Search all nodes outside the hull, depth by depth."""
        queue = {key.tobytes(): key for key in self.frontier_nodes(nodes)}
        seen, violators, values = set(queue), [], []
        worst, visits, depth_reached = 0.0, 0, EVERYWHERE
        while queue:
            depths = self.dag.depth(np.stack(list(queue.values())))
            level = int(depths.min())
            names = [name for name, depth in zip(queue, depths, strict=True) if depth == level]
            if visits + len(names) > self.max_visits or (violators and visits > MAX_VISITS_WITH_VIOLATORS):
                depth_reached = level - 1
                break
            keys = np.stack([queue.pop(name) for name in names])
            level_values, below = self._values_and_bounds(keys, forms, threshold)
            visits += len(keys)
            above = level_values > threshold
            violators, values = violators + list(keys[above]), values + level_values[above].tolist()
            deeper = below > threshold
            worst = max(worst, float(level_values.max()), float(below[~deeper].max(initial=0.0)))
            for key in keys[deeper]:
                for child in self.dag.children(key):
                    name = child.tobytes()
                    if name not in seen and name not in nodes.places:
                        seen.add(name)
                        queue[name] = child
        keys = np.array(violators, np.int64).reshape(len(violators), self.dag.width)
        is_certified = depth_reached == EVERYWHERE or depth_reached >= 0
        return Violations(keys, np.array(values), worst, depth_reached if is_certified else None, visits)

    def _values_and_bounds(self, keys: np.ndarray, forms: NodeForms, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """Return, for every node of ``keys``, its value in the certificate, and a bound on the values of its strict descendants."""
        penalties, specs = self.dag.penalties(keys), [self.dag.kernel(key) for key in keys]
        is_leaf = np.array([len(self.dag.children(key)) == 0 for key in keys])
        if self.dag.shrinks > 0:
            values, parts = forms.split_totals(specs)
            below = parts / (self.dag.shrinks * penalties) ** 2
        else:
            values, below = forms.totals(specs), np.full(len(keys), np.inf)
        below[is_leaf] = 0.0
        self._tighten(below, keys, forms, threshold)
        return np.maximum(values, 0.0) / penalties**2, below

    def _tighten(self, below: np.ndarray, keys: np.ndarray, forms: NodeForms, threshold: float) -> None:
        """Replace the bounds in ``below`` that exceed the threshold by the closed form of the sum over descendants, if that is smaller."""
        if self.dag.width > MAX_SUM_WIDTH:
            return
        sums = [(i, spec) for i in np.flatnonzero(below > threshold).tolist() if (spec := self.dag.below(keys[i])) is not None]
        if sums:
            rows = [i for i, _ in sums]
            totals = forms.totals([spec for _, spec in sums])
            below[rows] = np.minimum(below[rows], np.maximum(totals, 0.0))
