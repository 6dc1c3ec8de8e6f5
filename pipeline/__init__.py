"""What is computed: estimators, and the runner of methods on stores. Public names are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimators.embedding import ColoredMVU, MinimumVolumeEmbedding, StructurePreservingEmbedding
    from .estimators.fgm import FGMClassifier, PathPoint
    from .estimators.group_lasso import GroupLassoClassifier, GroupLassoRegressor
    from .estimators.hierarchical import HierarchicalKernelClassifier, HierarchicalKernelRegressor
    from .estimators.inputs import use_client
    from .estimators.kta_path import KTASelectionPath, PathMachine
    from .estimators.latent_tasks import LatentTaskMKLClassifier, LatentTaskMKLRegressor
    from .estimators.mkl import MKLClassifier, MKLRegressor
    from .estimators.multitask import MultiTaskMKLClassifier, MultiTaskMKLRegressor
    from .estimators.npkl import SimpleNPKL
    from .estimators.ranker import SemanticKernelRanker, VisualRank
    from .estimators.rules import RuleEnsembleClassifier
    from .estimators.selector import MultiTaskSelector
    from .estimators.shared_subspace import SharedSubspaceMKLClassifier, SharedSubspaceMKLRegressor
    from .estimators.social import SocialStrengthRanker
    from .estimators.triclass import TriClassSVC
    from .estimators.two_layer import TwoLayerMKLClassifier
    from .estimators.umkl import UnsupervisedMKL
    from .registry import METHODS, MethodInfo
    from .running import ConfigMismatch, RunOutcome, load_model, resume_run, run_method
    from .storing import predict_store, score_store
    from .tuning import cross_validate, tune

_HOMES = {
    "estimators.embedding": ("ColoredMVU", "MinimumVolumeEmbedding", "StructurePreservingEmbedding"),
    "estimators.fgm": ("FGMClassifier", "PathPoint"),
    "estimators.group_lasso": ("GroupLassoClassifier", "GroupLassoRegressor"),
    "estimators.hierarchical": ("HierarchicalKernelClassifier", "HierarchicalKernelRegressor"),
    "estimators.inputs": ("use_client",),
    "estimators.kta_path": ("KTASelectionPath", "PathMachine"),
    "estimators.latent_tasks": ("LatentTaskMKLClassifier", "LatentTaskMKLRegressor"),
    "estimators.mkl": ("MKLClassifier", "MKLRegressor"),
    "estimators.multitask": ("MultiTaskMKLClassifier", "MultiTaskMKLRegressor"),
    "estimators.npkl": ("SimpleNPKL",),
    "estimators.ranker": ("SemanticKernelRanker", "VisualRank"),
    "estimators.rules": ("RuleEnsembleClassifier",),
    "estimators.selector": ("MultiTaskSelector",),
    "estimators.shared_subspace": ("SharedSubspaceMKLClassifier", "SharedSubspaceMKLRegressor"),
    "estimators.social": ("SocialStrengthRanker",),
    "estimators.triclass": ("TriClassSVC",),
    "estimators.two_layer": ("TwoLayerMKLClassifier",),
    "estimators.umkl": ("UnsupervisedMKL",),
    "registry": ("METHODS", "MethodInfo"),
    "running": ("ConfigMismatch", "RunOutcome", "load_model", "resume_run", "run_method"),
    "storing": ("predict_store", "score_store"),
    "tuning": ("cross_validate", "tune"),
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
