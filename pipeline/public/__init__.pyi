"""Written by .ci/make_package.py."""

from gramplane.pipeline import ColoredMVU as ColoredMVU
from gramplane.pipeline import ConfigMismatch as ConfigMismatch
from gramplane.pipeline import FGMClassifier as FGMClassifier
from gramplane.pipeline import FGMClassifierCV as FGMClassifierCV
from gramplane.pipeline import FGMRegressor as FGMRegressor
from gramplane.pipeline import FGMRegressorCV as FGMRegressorCV
from gramplane.pipeline import GroupLassoClassifier as GroupLassoClassifier
from gramplane.pipeline import GroupLassoRegressor as GroupLassoRegressor
from gramplane.pipeline import HierarchicalKernelClassifier as HierarchicalKernelClassifier
from gramplane.pipeline import HierarchicalKernelRegressor as HierarchicalKernelRegressor
from gramplane.pipeline import KTASelectionPath as KTASelectionPath
from gramplane.pipeline import LatentTaskMKLClassifier as LatentTaskMKLClassifier
from gramplane.pipeline import LatentTaskMKLRegressor as LatentTaskMKLRegressor
from gramplane.pipeline import METHODS as METHODS
from gramplane.pipeline import MKLClassifier as MKLClassifier
from gramplane.pipeline import MKLRegressor as MKLRegressor
from gramplane.pipeline import MethodInfo as MethodInfo
from gramplane.pipeline import MinimumVolumeEmbedding as MinimumVolumeEmbedding
from gramplane.pipeline import MultiTaskMKLClassifier as MultiTaskMKLClassifier
from gramplane.pipeline import MultiTaskMKLRegressor as MultiTaskMKLRegressor
from gramplane.pipeline import MultiTaskSelector as MultiTaskSelector
from gramplane.pipeline import PathMachine as PathMachine
from gramplane.pipeline import PathPoint as PathPoint
from gramplane.pipeline import RuleEnsembleClassifier as RuleEnsembleClassifier
from gramplane.pipeline import RunOutcome as RunOutcome
from gramplane.pipeline import SemanticKernelRanker as SemanticKernelRanker
from gramplane.pipeline import SharedSubspaceMKLClassifier as SharedSubspaceMKLClassifier
from gramplane.pipeline import SharedSubspaceMKLRegressor as SharedSubspaceMKLRegressor
from gramplane.pipeline import SimpleNPKL as SimpleNPKL
from gramplane.pipeline import SocialStrengthRanker as SocialStrengthRanker
from gramplane.pipeline import StructurePreservingEmbedding as StructurePreservingEmbedding
from gramplane.pipeline import TriClassSVC as TriClassSVC
from gramplane.pipeline import TwoLayerMKLClassifier as TwoLayerMKLClassifier
from gramplane.pipeline import UnsupervisedMKL as UnsupervisedMKL
from gramplane.pipeline import VisualRank as VisualRank
from gramplane.pipeline import cross_validate as cross_validate
from gramplane.pipeline import generalization_bound as generalization_bound
from gramplane.pipeline import load_model as load_model
from gramplane.pipeline import predict_store as predict_store
from gramplane.pipeline import resume_run as resume_run
from gramplane.pipeline import run_method as run_method
from gramplane.pipeline import score_store as score_store
from gramplane.pipeline import selection_stability as selection_stability
from gramplane.pipeline import tune as tune
from gramplane.pipeline import use_client as use_client
from gramplane.storage.ingest import ingest as ingest
from gramplane.storage.ingest import ingest_grams as ingest_grams
from gramplane import datasets as datasets
from gramplane import plots as plots
from gramplane import testing as testing

__version__: str
__all__ = ['ColoredMVU', 'ConfigMismatch', 'FGMClassifier', 'FGMClassifierCV', 'FGMRegressor', 'FGMRegressorCV', 'GroupLassoClassifier', 'GroupLassoRegressor', 'HierarchicalKernelClassifier', 'HierarchicalKernelRegressor', 'KTASelectionPath', 'LatentTaskMKLClassifier', 'LatentTaskMKLRegressor', 'METHODS', 'MKLClassifier', 'MKLRegressor', 'MethodInfo', 'MinimumVolumeEmbedding', 'MultiTaskMKLClassifier', 'MultiTaskMKLRegressor', 'MultiTaskSelector', 'PathMachine', 'PathPoint', 'RuleEnsembleClassifier', 'RunOutcome', 'SemanticKernelRanker', 'SharedSubspaceMKLClassifier', 'SharedSubspaceMKLRegressor', 'SimpleNPKL', 'SocialStrengthRanker', 'StructurePreservingEmbedding', 'TriClassSVC', 'TwoLayerMKLClassifier', 'UnsupervisedMKL', 'VisualRank', '__version__', 'cross_validate', 'datasets', 'generalization_bound', 'ingest', 'ingest_grams', 'load_model', 'plots', 'predict_store', 'resume_run', 'run_method', 'score_store', 'selection_stability', 'testing', 'tune', 'use_client']
