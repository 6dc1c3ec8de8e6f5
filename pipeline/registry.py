"""METHODS: everything the command line, the workflows and the test batteries know of a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .methods import (
    fgm_run,
    gmkl_run,
    hkl_run,
    kta_path_run,
    latent_tasks_run,
    multitask_run,
    rules_run,
    shared_subspace_run,
    two_layer_run,
    umkl_run,
)
from .records.config import FGMConfig, MethodConfig
from .records.config_hkl import HKLConfig
from .records.config_kernels import MKLConfig
from .records.config_kta import KTAPathConfig
from .records.config_latent import LatentTaskConfig
from .records.config_rules import RuleConfig
from .records.config_subspace import SharedSubspaceConfig
from .records.config_tasks import MultiTaskMKLConfig
from .records.config_two_layer import TwoLayerConfig
from .records.config_umkl import UMKLConfig
from .records.context import RunContext
from .records.fgm import FGMModel
from .records.kernel_model import KernelModel
from .records.rule_model import RuleModel
from .records.task_model import TaskModel


@dataclass(frozen=True)
class MethodInfo:
    """A method by name.

    Attributes
    ----------
    name, title
        Name on the command line; title in reports.
    config
        Parameter model.
    prepare
        ``prepare(config, ctx, extra)`` returns the loop with its finishing functions.
    model
        Record type of a saved model, or several.
    estimator
        ``module:class`` of the scikit-learn class, under ``gramplane.pipeline``.
    regressor
        The same for real-valued targets, where a method has both; a run follows the target of its store.
    """

    name: str
    title: str
    config: type[MethodConfig]
    prepare: Callable[[Any, RunContext, Mapping[str, Any]], Any]
    model: type | tuple[type, ...]
    estimator: str
    regressor: str | None = None


METHODS: dict[str, MethodInfo] = {
    "fgm": MethodInfo(
        name="fgm",
        title="Feature Generating Machine",
        config=FGMConfig,
        prepare=fgm_run.prepare,
        model=FGMModel,
        estimator="estimators.fgm:FGMClassifier",
    ),
    "mkl": MethodInfo(
        name="mkl",
        title="Generalized multiple kernel learning",
        config=MKLConfig,
        prepare=gmkl_run.prepare,
        model=KernelModel,
        estimator="estimators.mkl:MKLClassifier",
        regressor="estimators.mkl:MKLRegressor",
    ),
    "unsupervised-mkl": MethodInfo(
        name="unsupervised-mkl",
        title="Unsupervised multiple kernel learning",
        config=UMKLConfig,
        prepare=umkl_run.prepare,
        model=KernelModel,
        estimator="estimators.umkl:UnsupervisedMKL",
    ),
    "kta-path": MethodInfo(
        name="kta-path",
        title="Kernel selection path",
        config=KTAPathConfig,
        prepare=kta_path_run.prepare,
        model=KernelModel,
        estimator="estimators.kta_path:KTASelectionPath",
    ),
    "two-layer-mkl": MethodInfo(
        name="two-layer-mkl",
        title="Two-layer multiple kernel learning",
        config=TwoLayerConfig,
        prepare=two_layer_run.prepare,
        model=KernelModel,
        estimator="estimators.two_layer:TwoLayerMKLClassifier",
    ),
    "latent-task-mkl": MethodInfo(
        name="latent-task-mkl",
        title="Multiple kernel learning on latent task structure",
        config=LatentTaskConfig,
        prepare=latent_tasks_run.prepare,
        model=TaskModel,
        estimator="estimators.latent_tasks:LatentTaskMKLClassifier",
        regressor="estimators.latent_tasks:LatentTaskMKLRegressor",
    ),
    "rule-ensemble": MethodInfo(
        name="rule-ensemble",
        title="Rule ensemble on the lattice of conjunctions",
        config=RuleConfig,
        prepare=rules_run.prepare,
        model=RuleModel,
        estimator="estimators.rules:RuleEnsembleClassifier",
    ),
    "hierarchical-kernels": MethodInfo(
        name="hierarchical-kernels",
        title="Hierarchical kernel learning",
        config=HKLConfig,
        prepare=hkl_run.prepare,
        model=(KernelModel, TaskModel),
        estimator="estimators.hierarchical:HierarchicalKernelClassifier",
        regressor="estimators.hierarchical:HierarchicalKernelRegressor",
    ),
    "multitask-mkl": MethodInfo(
        name="multitask-mkl",
        title="Multiple kernel learning for many tasks",
        config=MultiTaskMKLConfig,
        prepare=multitask_run.prepare,
        model=TaskModel,
        estimator="estimators.multitask:MultiTaskMKLClassifier",
        regressor="estimators.multitask:MultiTaskMKLRegressor",
    ),
    "shared-subspace-mkl": MethodInfo(
        name="shared-subspace-mkl",
        title="Multiple kernel learning in a subspace that tasks share",
        config=SharedSubspaceConfig,
        prepare=shared_subspace_run.prepare,
        model=TaskModel,
        estimator="estimators.shared_subspace:SharedSubspaceMKLClassifier",
        regressor="estimators.shared_subspace:SharedSubspaceMKLRegressor",
    ),
}
