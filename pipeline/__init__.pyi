"""Written by .ci/make_package.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
import numpy
from ..kernels.graphs.kernel_graphs import KernelDag
from ..kernels.grams.spec import KernelSpec
from .estimators.inputs import use_client as use_client
from .methods.fgm.estimator import PathPoint as PathPoint
from .methods.kta_path.estimator import PathMachine as PathMachine
from .methods.two_layer_mkl.estimator import generalization_bound as generalization_bound
from .runs.load import load_model as load_model
from .runs.predict_and_score import predict_store as predict_store
from .runs.predict_and_score import score_store as score_store
from .runs.run import ConfigMismatch as ConfigMismatch
from .runs.run import RunOutcome as RunOutcome
from .runs.run import resume_run as resume_run
from .runs.run import run_method as run_method
from .runs.stability import selection_stability as selection_stability
from .runs.tune import cross_validate as cross_validate
from .runs.tune import tune as tune
from .methods.embeddings import estimator as _embeddings
from .methods.fgm import estimator as _fgm
from .methods.group_lasso import estimator as _group_lasso
from .methods.hierarchical_kernels import estimator as _hierarchical_kernels
from .methods.kta_path import estimator as _kta_path
from .methods.latent_task_mkl import estimator as _latent_task_mkl
from .methods.mkl import estimator as _mkl
from .methods.multitask_mkl import estimator as _multitask_mkl
from .methods.multitask_selector import estimator as _multitask_selector
from .methods.npkl import estimator as _npkl
from .methods.rule_ensemble import estimator as _rule_ensemble
from .methods.semantic_ranker import estimator as _semantic_ranker
from .methods.shared_subspace_mkl import estimator as _shared_subspace_mkl
from .methods.social_strength import estimator as _social_strength
from .methods.tri_class_svm import estimator as _tri_class_svm
from .methods.two_layer_mkl import estimator as _two_layer_mkl
from .methods.unsupervised_mkl import estimator as _unsupervised_mkl
from .registry import METHODS as METHODS, MethodInfo as MethodInfo

class ColoredMVU(_embeddings.ColoredMVU):
    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 5,
        graph: Literal['mutual', 'union'] = 'mutual',
        C: float = 1.0,
        B: float | None = None,
        tol: float = 0.0001,
        max_iter: int = 200,
        label_kernel: Any = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None: ...

class FGMClassifier(_fgm.FGMClassifier):
    def __init__(
        self,
        B: int = 10,
        C: float | Literal['auto'] = 'auto',
        max_rounds: int = 10,
        n_features_to_select: int | None = None,
        loss: Literal['squared_hinge', 'logistic'] = 'squared_hinge',
        fit_intercept: bool = True,
        groups: Any = None,
        group_weight: Any = None,
        feature_map: Literal['poly2', 'hik', 'additive_gaussian'] | None = None,
        gamma: float = 1.0,
        coef0: float = 1.0,
        n_bins: int = 100,
        solver: Literal['auto', 'newton', 'apg', 'mkl'] = 'auto',
        inner_tol: float = 0.001,
        inner_stop: Literal['gap', 'decrease'] = 'gap',
        max_inner: int | None = None,
        outer_tol: float | None = None,
        allow_repeat: bool = True,
        debias: bool = False,
        outer_stop: Literal['gap', 'decrease'] = 'gap',
        class_weight: Literal['balanced'] | dict[Any, float] | None = None,
        probability: Literal['auto', 'sigmoid', 'isotonic', False] = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class FGMRegressor(_fgm.FGMRegressor):
    def __init__(
        self,
        B: int = 10,
        C: float | Literal['auto'] = 'auto',
        max_rounds: int = 10,
        n_features_to_select: int | None = None,
        loss: Literal['squared', 'squared_epsilon_insensitive', 'huber'] = 'squared',
        epsilon: float = 0.1,
        delta: float = 1.35,
        fit_intercept: bool = True,
        groups: Any = None,
        group_weight: Any = None,
        feature_map: Literal['poly2', 'hik', 'additive_gaussian'] | None = None,
        gamma: float = 1.0,
        coef0: float = 1.0,
        n_bins: int = 100,
        solver: Literal['auto', 'newton', 'apg', 'mkl'] = 'auto',
        inner_tol: float = 0.001,
        inner_stop: Literal['gap', 'decrease'] = 'gap',
        max_inner: int | None = None,
        outer_tol: float | None = None,
        allow_repeat: bool = True,
        debias: bool = False,
        outer_stop: Literal['gap', 'decrease'] = 'gap',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class GroupLassoClassifier(_group_lasso.GroupLassoClassifier):
    def __init__(
        self,
        penalty: Literal['gl', 'sgl', 'egl', 'l1'] = 'gl',
        lam: float | Literal['auto'] = 'auto',
        gamma: float = 1.0,
        groups: Any = None,
        r: float | list[float] = 1.0,
        rho: float = 0.0,
        algorithm: Literal['auto', 'da', 'fobos', 'fista'] = 'auto',
        epochs: int = 1,
        batch_size: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = True,
        average: bool = False,
        loss: Literal['auto', 'logistic', 'squared', 'hinge'] = 'auto',
        tol: float = 0.0001,
        max_iter: int = 1000,
        class_weight: Literal['balanced'] | dict[Any, float] | None = None,
        edges: Any = None,
        probability: Literal['auto', 'sigmoid', 'isotonic', False] = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class GroupLassoRegressor(_group_lasso.GroupLassoRegressor):
    def __init__(
        self,
        penalty: Literal['gl', 'sgl', 'egl', 'l1'] = 'gl',
        lam: float | Literal['auto'] = 'auto',
        gamma: float = 1.0,
        groups: Any = None,
        r: float | list[float] = 1.0,
        rho: float = 0.0,
        algorithm: Literal['auto', 'da', 'fobos', 'fista'] = 'auto',
        epochs: int = 1,
        batch_size: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = True,
        average: bool = False,
        loss: Literal['auto', 'squared'] = 'auto',
        tol: float = 0.0001,
        max_iter: int = 1000,
        edges: Any = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class HierarchicalKernelClassifier(_hierarchical_kernels.HierarchicalKernelClassifier):
    def __init__(
        self,
        dag: str | Sequence[Any] | Mapping[str, Any] | KernelDag | None = None,
        rho: float = 1.5,
        a: float = 2.0,
        C: float = 1.0,
        loss: Literal['auto', 'hinge', 'squared_hinge', 'epsilon_insensitive', 'squared'] = 'auto',
        task_kernel: float | Sequence[Sequence[float]] | numpy.ndarray | None = None,
        solver: Literal['auto', 'mirror'] = 'auto',
        normalize: Literal['none', 'trace'] = 'none',
        tol: float = 0.001,
        max_rounds: int = 50,
        max_nodes: int = 500,
        max_solves: int = 500,
        max_visits: int = 20000,
        n_add: int = 30,
        rest: float | None = None,
        threshold: float = 0.001,
        max_iter: int = 5000,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        class_weight: Literal['balanced'] | dict[Any, float] | None = None,
        probability: Literal['auto', 'sigmoid', 'isotonic', False] = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class HierarchicalKernelRegressor(_hierarchical_kernels.HierarchicalKernelRegressor):
    def __init__(
        self,
        dag: str | Sequence[Any] | Mapping[str, Any] | KernelDag | None = None,
        rho: float = 1.5,
        a: float = 2.0,
        C: float = 1.0,
        loss: Literal['auto', 'hinge', 'squared_hinge', 'epsilon_insensitive', 'squared'] = 'auto',
        epsilon: float = 0.1,
        task_kernel: float | Sequence[Sequence[float]] | numpy.ndarray | None = None,
        solver: Literal['auto', 'mirror'] = 'auto',
        normalize: Literal['none', 'trace'] = 'none',
        tol: float = 0.001,
        max_rounds: int = 50,
        max_nodes: int = 500,
        max_solves: int = 500,
        max_visits: int = 20000,
        n_add: int = 30,
        rest: float | None = None,
        threshold: float = 0.001,
        max_iter: int = 5000,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class KTASelectionPath(_kta_path.KTASelectionPath):
    def __init__(
        self,
        kernel: Literal['rbf', 'linear', 'precomputed'] = 'rbf',
        divergence: Literal['euclidean', 'kl'] = 'euclidean',
        lam1: float | None = None,
        lam2: float | None = None,
        eta0: float = 0.0,
        p_start: float = 2.0,
        p_end: float = 1.0,
        dp: float = 0.01,
        eps: float = 0.0001,
        order: int = 1,
        C: float = 1.0,
        n_machines: int = 11,
        class_weight: Literal['balanced'] | dict[Any, float] | None = None,
        probability: Literal['auto', 'sigmoid', 'isotonic', False] = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None: ...

class LatentTaskMKLClassifier(_latent_task_mkl.LatentTaskMKLClassifier):
    def __init__(
        self,
        kernels: Sequence[KernelSpec | str | Callable[..., Any]] | Literal['precomputed'] | None = None,
        p: float = 1.5,
        q: float = 1.5,
        a: float = 1.5,
        mu: float = 1.0,
        C: float | Literal['auto'] = 'auto',
        inverted: bool = False,
        loss: Literal['auto', 'hinge', 'epsilon_insensitive', 'squared'] = 'auto',
        normalize: Literal['none', 'trace', 'unit_trace', 'multiplicative', 'cosine'] = 'trace',
        tol: float = 0.01,
        max_iter: int = 500,
        max_rounds: int = 50,
        max_groups: int = 2000,
        max_size: int | None = 8,
        stop_at_rest: bool = False,
        threshold: float = 0.001,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        class_weight: Literal['balanced'] | dict[Any, float] | None = None,
        probability: Literal['auto', 'sigmoid', 'isotonic', False] = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class LatentTaskMKLRegressor(_latent_task_mkl.LatentTaskMKLRegressor):
    def __init__(
        self,
        kernels: Sequence[KernelSpec | str | Callable[..., Any]] | Literal['precomputed'] | None = None,
        p: float = 1.5,
        q: float = 1.5,
        a: float = 1.5,
        mu: float = 1.0,
        C: float | Literal['auto'] = 'auto',
        inverted: bool = False,
        loss: Literal['auto', 'hinge', 'epsilon_insensitive', 'squared'] = 'auto',
        epsilon: float = 0.1,
        normalize: Literal['none', 'trace', 'unit_trace', 'multiplicative', 'cosine'] = 'trace',
        tol: float = 0.01,
        max_iter: int = 500,
        max_rounds: int = 50,
        max_groups: int = 2000,
        max_size: int | None = 8,
        stop_at_rest: bool = False,
        threshold: float = 0.001,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class MKLClassifier(_mkl.MKLClassifier):
    def __init__(
        self,
        kernels: Sequence[KernelSpec | str | Callable[..., Any]] | Literal['precomputed'] | None = None,
        constraint: Literal['elastic_net', 'simplex', 'l2', 'lp'] = 'elastic_net',
        v: float = 0.5,
        p: float = 2.0,
        C: float = 1.0,
        solver: Literal['auto', 'level', 'silp', 'simplemkl', 'alternate', 'uniform', 'single'] = 'auto',
        tau: float = 0.3,
        normalize: Literal['none', 'trace', 'unit_trace', 'multiplicative', 'cosine'] = 'trace',
        tol: float = 0.001,
        max_iter: int = 200,
        threshold: float = 0.0001,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        class_weight: Literal['balanced'] | dict[Any, float] | None = None,
        probability: Literal['auto', 'sigmoid', 'isotonic', False] = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class MKLRegressor(_mkl.MKLRegressor):
    def __init__(
        self,
        kernels: Sequence[KernelSpec | str | Callable[..., Any]] | Literal['precomputed'] | None = None,
        constraint: Literal['elastic_net', 'simplex', 'l2', 'lp'] = 'elastic_net',
        v: float = 0.5,
        p: float = 2.0,
        C: float = 1.0,
        solver: Literal['auto', 'level', 'silp', 'simplemkl', 'alternate', 'uniform', 'single'] = 'auto',
        tau: float = 0.3,
        normalize: Literal['none', 'trace', 'unit_trace', 'multiplicative', 'cosine'] = 'trace',
        tol: float = 0.001,
        max_iter: int = 200,
        epsilon: float = 0.1,
        threshold: float = 0.0001,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class MinimumVolumeEmbedding(_embeddings.MinimumVolumeEmbedding):
    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 5,
        graph: Literal['mutual', 'union'] = 'mutual',
        C: float = 1.0,
        B: float | None = None,
        tol: float = 0.0001,
        max_iter: int = 200,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None: ...

class MultiTaskMKLClassifier(_multitask_mkl.MultiTaskMKLClassifier):
    def __init__(
        self,
        kernels: Sequence[KernelSpec | str | Callable[..., Any]] | Literal['precomputed'] | None = None,
        p: float = 2.0,
        q: float = 1.0,
        C: float = 1.0,
        loss: Literal['auto', 'hinge', 'epsilon_insensitive', 'squared'] = 'auto',
        solver: Literal['auto', 'mirror'] = 'auto',
        normalize: Literal['none', 'trace', 'unit_trace', 'multiplicative', 'cosine'] = 'trace',
        tol: float = 0.001,
        max_iter: int = 500,
        threshold: float = 0.0001,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        class_weight: Literal['balanced'] | dict[Any, float] | None = None,
        probability: Literal['auto', 'sigmoid', 'isotonic', False] = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class MultiTaskMKLRegressor(_multitask_mkl.MultiTaskMKLRegressor):
    def __init__(
        self,
        kernels: Sequence[KernelSpec | str | Callable[..., Any]] | Literal['precomputed'] | None = None,
        p: float = 2.0,
        q: float = 1.0,
        C: float = 1.0,
        loss: Literal['auto', 'hinge', 'epsilon_insensitive', 'squared'] = 'auto',
        epsilon: float = 0.1,
        solver: Literal['auto', 'mirror'] = 'auto',
        normalize: Literal['none', 'trace', 'unit_trace', 'multiplicative', 'cosine'] = 'trace',
        tol: float = 0.001,
        max_iter: int = 500,
        threshold: float = 0.0001,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class MultiTaskSelector(_multitask_selector.MultiTaskSelector):
    def __init__(
        self,
        penalty: Literal['imtfs', 'amtfs', 'mtfts'] = 'mtfts',
        lam: float | Literal['auto'] = 'auto',
        gamma: float = 1.0,
        r: float = 0.01,
        loss: Literal['squared', 'logistic', 'hinge'] = 'squared',
        algorithm: Literal['auto', 'da', 'fista'] = 'auto',
        epochs: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = True,
        task_offset: Literal['mean', 'shrunken'] | None = None,
        refit: float | None = None,
        tol: float = 0.0001,
        max_iter: int = 1000,
        class_weight: Literal['balanced'] | dict[Any, float] | None = None,
        probability: Literal['auto', 'sigmoid', 'isotonic', False] = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class RuleEnsembleClassifier(_rule_ensemble.RuleEnsembleClassifier):
    def __init__(
        self,
        rho: float = 1.1,
        a: float = 2.0,
        C: float = 1.0,
        n_thresholds: int = 9,
        refine_cuts: bool = True,
        categorical: Sequence[int | str] | None = None,
        task_kernel: Sequence[Sequence[float]] | numpy.ndarray | None = None,
        tol: float = 0.001,
        max_rounds: int = 50,
        max_rules: int = 1000,
        max_visits: int = 2000000,
        rest: float | None = 0.0001,
        add: int = 30,
        skip_implied: bool = True,
        prune: float = 0.02,
        refit: bool = True,
        solver: Literal['auto', 'newton', 'mirror'] = 'auto',
        class_weight: Literal['balanced'] | dict[Any, float] | None = None,
        probability: Literal['auto', 'sigmoid', 'isotonic', False] = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None: ...

class SemanticKernelRanker(_semantic_ranker.SemanticKernelRanker):
    def __init__(
        self,
        n_neighbors: int = 6,
        C: float = 1.0,
        B: float | None = None,
        damping: float = 0.85,
        graph: Literal['mutual', 'union'] = 'mutual',
        base: int | None = None,
        diagonal: Literal['zero', 'keep'] = 'zero',
        min_images: int = 1,
        untagged: Literal['raise', 'zero'] = 'raise',
        gamma: float = 3.0,
        warp: Literal['corrected', 'seed'] = 'corrected',
        tol: float = 1e-05,
        max_iter: int = 300,
        walk_tol: float = 1e-10,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None: ...

class SharedSubspaceMKLClassifier(_shared_subspace_mkl.SharedSubspaceMKLClassifier):
    def __init__(
        self,
        kernels: Sequence[KernelSpec | str | Callable[..., Any]] | Literal['precomputed'] | None = None,
        q: float = 1.5,
        C: float | Literal['auto'] = 'auto',
        loss: Literal['auto', 'hinge', 'epsilon_insensitive', 'squared'] = 'auto',
        solver: Literal['auto', 'mirror', 'alternate'] = 'auto',
        normalize: Literal['none', 'trace', 'unit_trace', 'multiplicative', 'cosine'] = 'trace',
        tol: float = 0.001,
        max_iter: int = 200,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        class_weight: Literal['balanced'] | dict[Any, float] | None = None,
        probability: Literal['auto', 'sigmoid', 'isotonic', False] = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class SharedSubspaceMKLRegressor(_shared_subspace_mkl.SharedSubspaceMKLRegressor):
    def __init__(
        self,
        kernels: Sequence[KernelSpec | str | Callable[..., Any]] | Literal['precomputed'] | None = None,
        q: float = 1.5,
        C: float | Literal['auto'] = 'auto',
        loss: Literal['auto', 'hinge', 'epsilon_insensitive', 'squared'] = 'auto',
        epsilon: float = 0.1,
        solver: Literal['auto', 'mirror', 'alternate'] = 'auto',
        normalize: Literal['none', 'trace', 'unit_trace', 'multiplicative', 'cosine'] = 'trace',
        tol: float = 0.001,
        max_iter: int = 200,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class SimpleNPKL(_npkl.SimpleNPKL):
    def __init__(
        self,
        loss: Literal['linear', 'squared_hinge', 'square', 'hinge'] = 'linear',
        p: float = 2.0,
        B: float = 1.0,
        G: float | None = None,
        C: float = 1.0,
        n_neighbors: int = 5,
        graph: Literal['mutual', 'union'] = 'mutual',
        closure: bool = False,
        selection: Literal['active', 'random'] | None = None,
        n_select: int | None = None,
        base: int | None = None,
        tol: float = 0.0001,
        max_iter: int = 200,
        run_on: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None: ...

class SocialStrengthRanker(_social_strength.SocialStrengthRanker):
    def __init__(
        self,
        C: float = 1.0,
        pair_kernel: Literal['similarity', 'difference', 'mlpk', 'tensor', 'tensor-symmetric'] = 'similarity',
        weights: Literal['kta', 'uniform'] = 'kta',
        kernels: Sequence[KernelSpec | str | Callable[..., Any]] | Literal['precomputed'] | None = 'precomputed',
        alignment: Literal['unit', 'off-diagonal'] = 'unit',
        normalize: Literal['row_max', 'cosine', 'none'] = 'row_max',
        view_scale: float = 10.0,
        n_import: int | None = None,
        import_tol: float = 0.001,
        n_candidates: int | None = 59,
        tol: float = 1e-06,
        max_iter: int = 100,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None: ...

class StructurePreservingEmbedding(_embeddings.StructurePreservingEmbedding):
    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 5,
        graph: Literal['mutual', 'union'] = 'mutual',
        C: float | Literal['auto'] = 'auto',
        B: float | None = None,
        tol: float = 0.001,
        max_iter: int = 100,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None: ...

class TriClassSVC(_tri_class_svm.TriClassSVC):
    def __init__(
        self,
        C: float = 1.0,
        C_unlabelled: float = 0.1,
        C_irrelevant: float | None = None,
        eps: float = 0.1,
        kernel: str | KernelSpec | Callable[..., Any] = 'rbf',
        gamma: Literal['scale', 'auto'] | float = 'scale',
        degree: int = 3,
        coef0: float = 0.0,
        algorithm: Literal['mm', 'dc', 'cccp'] = 'mm',
        start: Literal['best', 'usvm', 'svm3', 's3vm', 'random'] = 'best',
        balance: Literal['labels'] | float | None = None,
        all_relevant: bool = False,
        n_random: int = 1,
        validation: Literal['auto'] | int = 'auto',
        irrelevant_label: bool | int | float | str | None = 0,
        D: float | None = None,
        class_weight: Literal['balanced'] | dict[Any, float] | None = None,
        tol: float = 0.0001,
        inner_tol: float = 0.001,
        max_iter: int = 50,
        grams: Literal['auto', 'memory', 'recompute'] = 'auto',
        probability: Literal['auto', 'sigmoid', 'isotonic', False] = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class TwoLayerMKLClassifier(_two_layer_mkl.TwoLayerMKLClassifier):
    def __init__(
        self,
        kernels: Sequence[KernelSpec | str | Callable[..., Any]] | Literal['precomputed'] | None = None,
        C: float = 1.0,
        infinite: bool = False,
        penalty: float | None = None,
        rule: Literal['descent', 'thesis'] = 'descent',
        max_new_kernels: int = 10,
        gamma_range: tuple[float, float] | None = None,
        n_restarts: int = 1,
        normalize: Literal['none', 'trace', 'unit_trace', 'multiplicative', 'cosine'] = 'trace',
        tol: float = 0.001,
        decrease_tol: float = 1e-05,
        max_iter: int = 200,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        class_weight: Literal['balanced'] | dict[Any, float] | None = None,
        probability: Literal['auto', 'sigmoid', 'isotonic', False] = 'auto',
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
        scale: Literal['auto', 'standard', 'max-abs', 'unit-column'] | None = 'auto',
    ) -> None: ...

class UnsupervisedMKL(_unsupervised_mkl.UnsupervisedMKL):
    def __init__(
        self,
        kernels: Sequence[KernelSpec | str | Callable[..., Any]] | None = None,
        n_bases: int = 10,
        gamma1: float = 0.01,
        gamma2: float = 0.0,
        stop: Literal['size', 'gain'] = 'size',
        safeguard: bool = True,
        n_components: int = 2,
        start: Literal['greedy', 'sparse-coding', 'kernel-sparse-coding'] = 'greedy',
        normalize: Literal['none', 'trace', 'unit_trace', 'multiplicative', 'cosine', 'column_sum'] = 'trace',
        tol: float = 1e-05,
        max_iter: int = 50,
        grams: Literal['auto', 'memory', 'store', 'recompute'] = 'auto',
        gram_store: str | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None: ...

class VisualRank(_semantic_ranker.VisualRank):
    def __init__(
        self,
        damping: float = 0.85,
        diagonal: Literal['auto', 'zero', 'keep'] = 'auto',
        solver: Literal['power', 'exact'] = 'power',
        tol: float = 1e-10,
        max_iter: int | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None: ...

__all__ = ['ColoredMVU', 'ConfigMismatch', 'FGMClassifier', 'FGMRegressor', 'GroupLassoClassifier', 'GroupLassoRegressor', 'HierarchicalKernelClassifier', 'HierarchicalKernelRegressor', 'KTASelectionPath', 'LatentTaskMKLClassifier', 'LatentTaskMKLRegressor', 'METHODS', 'MKLClassifier', 'MKLRegressor', 'MethodInfo', 'MinimumVolumeEmbedding', 'MultiTaskMKLClassifier', 'MultiTaskMKLRegressor', 'MultiTaskSelector', 'PathMachine', 'PathPoint', 'RuleEnsembleClassifier', 'RunOutcome', 'SemanticKernelRanker', 'SharedSubspaceMKLClassifier', 'SharedSubspaceMKLRegressor', 'SimpleNPKL', 'SocialStrengthRanker', 'StructurePreservingEmbedding', 'TriClassSVC', 'TwoLayerMKLClassifier', 'UnsupervisedMKL', 'VisualRank', 'cross_validate', 'generalization_bound', 'load_model', 'predict_store', 'resume_run', 'run_method', 'score_store', 'selection_stability', 'tune', 'use_client']
