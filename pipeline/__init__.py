"""What is computed: estimators, and the runner of methods on stores. Public names are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .registry import METHODS, MethodInfo  # noqa: F401 (public)

if TYPE_CHECKING:
    from .estimators.inputs import use_client as use_client
    from .methods.embeddings.estimator import ColoredMVU as ColoredMVU
    from .methods.embeddings.estimator import MinimumVolumeEmbedding as MinimumVolumeEmbedding
    from .methods.embeddings.estimator import StructurePreservingEmbedding as StructurePreservingEmbedding
    from .methods.fgm.estimator import FGMClassifier as FGMClassifier
    from .methods.fgm.estimator import FGMClassifierCV as FGMClassifierCV
    from .methods.fgm.estimator import FGMRegressor as FGMRegressor
    from .methods.fgm.estimator import FGMRegressorCV as FGMRegressorCV
    from .methods.fgm.estimator import PathPoint as PathPoint
    from .methods.group_lasso.estimator import GroupLassoClassifier as GroupLassoClassifier
    from .methods.group_lasso.estimator import GroupLassoClassifierCV as GroupLassoClassifierCV
    from .methods.group_lasso.estimator import GroupLassoRegressor as GroupLassoRegressor
    from .methods.group_lasso.estimator import GroupLassoRegressorCV as GroupLassoRegressorCV
    from .methods.hierarchical_kernels.estimator import HierarchicalKernelClassifier as HierarchicalKernelClassifier
    from .methods.hierarchical_kernels.estimator import HierarchicalKernelRegressor as HierarchicalKernelRegressor
    from .methods.kta_path.estimator import KTASelectionPath as KTASelectionPath
    from .methods.kta_path.estimator import KTASelectionPathCV as KTASelectionPathCV
    from .methods.kta_path.estimator import KTASelectionPathRegressor as KTASelectionPathRegressor
    from .methods.kta_path.estimator import PathMachine as PathMachine
    from .methods.latent_task_mkl.estimator import LatentTaskMKLClassifier as LatentTaskMKLClassifier
    from .methods.latent_task_mkl.estimator import LatentTaskMKLRegressor as LatentTaskMKLRegressor
    from .methods.mkl.estimator import MKLClassifier as MKLClassifier
    from .methods.mkl.estimator import MKLClassifierCV as MKLClassifierCV
    from .methods.mkl.estimator import MKLRegressor as MKLRegressor
    from .methods.mkl.estimator import MKLRegressorCV as MKLRegressorCV
    from .methods.multitask_mkl.estimator import MultiTaskMKLClassifier as MultiTaskMKLClassifier
    from .methods.multitask_mkl.estimator import MultiTaskMKLClassifierCV as MultiTaskMKLClassifierCV
    from .methods.multitask_mkl.estimator import MultiTaskMKLRegressor as MultiTaskMKLRegressor
    from .methods.multitask_mkl.estimator import MultiTaskMKLRegressorCV as MultiTaskMKLRegressorCV
    from .methods.multitask_selector.estimator import MultiTaskSelector as MultiTaskSelector
    from .methods.npkl.estimator import SimpleNPKL as SimpleNPKL
    from .methods.rule_ensemble.estimator import RuleEnsembleClassifier as RuleEnsembleClassifier
    from .methods.rule_ensemble.estimator import RuleEnsembleClassifierCV as RuleEnsembleClassifierCV
    from .methods.rule_ensemble.estimator import RuleEnsembleRegressor as RuleEnsembleRegressor
    from .methods.semantic_ranker.estimator import SemanticKernelRanker as SemanticKernelRanker
    from .methods.semantic_ranker.estimator import VisualRank as VisualRank
    from .methods.shared_subspace_mkl.estimator import SharedSubspaceMKLClassifier as SharedSubspaceMKLClassifier
    from .methods.shared_subspace_mkl.estimator import SharedSubspaceMKLRegressor as SharedSubspaceMKLRegressor
    from .methods.social_strength.estimator import SocialStrengthRanker as SocialStrengthRanker
    from .methods.tri_class_svm.estimator import TriClassSVC as TriClassSVC
    from .methods.two_layer_mkl.estimator import TwoLayerMKLClassifier as TwoLayerMKLClassifier
    from .methods.two_layer_mkl.estimator import TwoLayerMKLRegressor as TwoLayerMKLRegressor
    from .methods.two_layer_mkl.estimator import generalization_bound as generalization_bound
    from .methods.unsupervised_mkl.estimator import UnsupervisedMKL as UnsupervisedMKL
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

_RUNS = {
    "ConfigMismatch": "runs.run",
    "RunOutcome": "runs.run",
    "cross_validate": "runs.tune",
    "load_model": "runs.load",
    "predict_store": "runs.predict_and_score",
    "resume_run": "runs.run",
    "run_method": "runs.run",
    "score_store": "runs.predict_and_score",
    "selection_stability": "runs.stability",
    "tune": "runs.tune",
    "use_client": "estimators.inputs",
}
_HOMES = {**_RUNS, **{name: f"methods.{info.system}.estimator" for info in METHODS.values() for name in info.public_names}}

__all__ = sorted([*_HOMES, "METHODS", "MethodInfo"])  # pyright: ignore[reportUnsupportedDunderAll] (names as above)


if not TYPE_CHECKING:  # (a name that there is not is an error to type checkers, too)

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)  # once
        return value


def __dir__() -> list[str]:
    return __all__
