"""What is computed: estimators, and the runner of methods on stores. Public names are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimators.inputs import use_client
    from .methods.embeddings.estimator import ColoredMVU, MinimumVolumeEmbedding, StructurePreservingEmbedding
    from .methods.fgm.estimator import FGMClassifier, PathPoint
    from .methods.group_lasso.estimator import GroupLassoClassifier, GroupLassoRegressor
    from .methods.hierarchical_kernels.estimator import HierarchicalKernelClassifier, HierarchicalKernelRegressor
    from .methods.kta_path.estimator import KTASelectionPath, PathMachine
    from .methods.latent_task_mkl.estimator import LatentTaskMKLClassifier, LatentTaskMKLRegressor
    from .methods.mkl.estimator import MKLClassifier, MKLRegressor
    from .methods.multitask_mkl.estimator import MultiTaskMKLClassifier, MultiTaskMKLRegressor
    from .methods.multitask_selector.estimator import MultiTaskSelector
    from .methods.npkl.estimator import SimpleNPKL
    from .methods.rule_ensemble.estimator import RuleEnsembleClassifier
    from .methods.semantic_ranker.estimator import SemanticKernelRanker, VisualRank
    from .methods.shared_subspace_mkl.estimator import SharedSubspaceMKLClassifier, SharedSubspaceMKLRegressor
    from .methods.social_strength.estimator import SocialStrengthRanker
    from .methods.tri_class_svm.estimator import TriClassSVC
    from .methods.two_layer_mkl.estimator import TwoLayerMKLClassifier
    from .methods.unsupervised_mkl.estimator import UnsupervisedMKL
    from .registry import METHODS, MethodInfo
    from .runs.run import ConfigMismatch, RunOutcome, load_model, resume_run, run_method
    from .runs.tune import cross_validate, tune
    from .runs.use import predict_store, score_store

_HOMES = {
    "methods.embeddings.estimator": ("ColoredMVU", "MinimumVolumeEmbedding", "StructurePreservingEmbedding"),
    "methods.fgm.estimator": ("FGMClassifier", "PathPoint"),
    "methods.group_lasso.estimator": ("GroupLassoClassifier", "GroupLassoRegressor"),
    "methods.hierarchical_kernels.estimator": ("HierarchicalKernelClassifier", "HierarchicalKernelRegressor"),
    "estimators.base": ("use_client",),
    "methods.kta_path.estimator": ("KTASelectionPath", "PathMachine"),
    "methods.latent_task_mkl.estimator": ("LatentTaskMKLClassifier", "LatentTaskMKLRegressor"),
    "methods.mkl.estimator": ("MKLClassifier", "MKLRegressor"),
    "methods.multitask_mkl.estimator": ("MultiTaskMKLClassifier", "MultiTaskMKLRegressor"),
    "methods.npkl.estimator": ("SimpleNPKL",),
    "methods.semantic_ranker.estimator": ("SemanticKernelRanker", "VisualRank"),
    "methods.rule_ensemble.estimator": ("RuleEnsembleClassifier",),
    "methods.multitask_selector.estimator": ("MultiTaskSelector",),
    "methods.shared_subspace_mkl.estimator": ("SharedSubspaceMKLClassifier", "SharedSubspaceMKLRegressor"),
    "methods.social_strength.estimator": ("SocialStrengthRanker",),
    "methods.tri_class_svm.estimator": ("TriClassSVC",),
    "methods.two_layer_mkl.estimator": ("TwoLayerMKLClassifier",),
    "methods.unsupervised_mkl.estimator": ("UnsupervisedMKL",),
    "registry": ("METHODS", "MethodInfo"),
    "runs.run": ("ConfigMismatch", "RunOutcome", "load_model", "resume_run", "run_method"),
    "runs.use": ("predict_store", "score_store"),
    "runs.tune": ("cross_validate", "tune"),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "METHODS",
    "ColoredMVU",
    "ConfigMismatch",
    "FGMClassifier",
    "GroupLassoClassifier",
    "GroupLassoRegressor",
    "HierarchicalKernelClassifier",
    "HierarchicalKernelRegressor",
    "KTASelectionPath",
    "LatentTaskMKLClassifier",
    "LatentTaskMKLRegressor",
    "MKLClassifier",
    "MKLRegressor",
    "MethodInfo",
    "MinimumVolumeEmbedding",
    "MultiTaskMKLClassifier",
    "MultiTaskMKLRegressor",
    "MultiTaskSelector",
    "PathMachine",
    "PathPoint",
    "RuleEnsembleClassifier",
    "RunOutcome",
    "SemanticKernelRanker",
    "SharedSubspaceMKLClassifier",
    "SharedSubspaceMKLRegressor",
    "SimpleNPKL",
    "SocialStrengthRanker",
    "StructurePreservingEmbedding",
    "TriClassSVC",
    "TwoLayerMKLClassifier",
    "UnsupervisedMKL",
    "VisualRank",
    "cross_validate",
    "load_model",
    "predict_store",
    "resume_run",
    "run_method",
    "score_store",
    "tune",
    "use_client",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
