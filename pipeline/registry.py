"""METHODS: everything the command line, the workflows and the test batteries know of a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .records.config import FGMConfig, MethodConfig
from .records.config_embedding import ColoredMVUConfig, MVEConfig, SPEConfig
from .records.config_hkl import HKLConfig
from .records.config_kernels import MKLConfig
from .records.config_kta import KTAPathConfig
from .records.config_latent import LatentTaskConfig
from .records.config_npkl import NPKLConfig
from .records.config_online import GroupLassoConfig
from .records.config_ranker import RankerConfig
from .records.config_rules import RuleConfig
from .records.config_selector import SelectorConfig
from .records.config_social import SocialConfig
from .records.config_subspace import SharedSubspaceConfig
from .records.config_tasks import MultiTaskMKLConfig
from .records.config_triclass import TriClassConfig
from .records.config_two_layer import TwoLayerConfig
from .records.config_umkl import UMKLConfig
from .records.context import RunContext
from .records.fgm import FGMModel
from .records.holdings import Held
from .records.kernel_model import KernelModel
from .records.linear_model import LinearModel
from .records.rule_model import RuleModel
from .records.social_model import SocialModel
from .records.spectral_model import SpectralModel
from .records.task_model import TaskModel

if TYPE_CHECKING:
    from .loops.prepared import Prepared


INPUTS = {
    "unlabelled": "a store of rows without a label",
    "constraints": "pairs of rows that belong together (+1) or apart (-1)",
    "pairs": "pairs of rows with a tie (1) or without one (0)",
    "tags": "tags of every row",
}
"""Further inputs of methods beside their data, by name."""


@dataclass(frozen=True)
class MethodInfo:
    """A method by name.

    Attributes
    ----------
    name, title
        Name on the command line; title in reports.
    config
        Parameter model.
    run
        Module under ``gramplane.pipeline.methods`` that prepares its runs; loaded when one begins.
    passes
        Module under ``gramplane.pipeline.passes`` whose block programs a worker loads before its memory is measured.
    tasks
        Whether it fits the tasks of a store that has them.
    scored
        Whether its fits are scored on rows held out, so that settings can be compared.
    shared
        Module under ``gramplane.pipeline.methods`` with ``shared_loops`` and ``table_rows``, where the fits of a grid share passes; by
        default they are done one after another.
    held
        Module under ``gramplane.pipeline.methods`` that declares what its driver may hold; that of its runs by default.
    missing
        Whether it takes stores with missing values.
    inputs
        What it takes beside a store: names in ``INPUTS``.
    needs
        Those of them without which it cannot run.
    streams
        Whether it also learns from a text that is read once.
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
    run: str
    model: type | tuple[type, ...]
    estimator: str
    regressor: str | None = None
    passes: str = "grams"
    held: str | None = None
    missing: bool = False
    inputs: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    streams: bool = False
    tasks: bool = False
    scored: bool = True
    shared: str | None = None

    def driver_holds(self) -> tuple[Held, ...]:
        """Return all that its driver may hold, as it is declared."""
        return import_module(f".methods.{self.held or self.run}", __package__).HELD

    def prepare(self, config: Any, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
        """Return the loop of a run with its finishing functions.

        Raises
        ------
        ValueError
            An input that the method does not take, or one missing that it needs.
        """
        for key, what in INPUTS.items():
            given = extra.get(key) is not None
            if given and key not in self.inputs:
                takers = ", ".join(name for name, info in METHODS.items() if key in info.inputs)
                raise ValueError(f"{key}: {self.name} does not take {what}; of the methods {takers} does")
            if not given and key in self.needs:
                raise ValueError(f"{key}: {self.name} needs {what} (--{key} FILE)")
        return import_module(f".methods.{self.run}", __package__).prepare(config, ctx, extra)


METHODS: dict[str, MethodInfo] = {
    "fgm": MethodInfo(
        name="fgm",
        title="Feature Generating Machine",
        config=FGMConfig,
        run="fgm_run",
        held="fgm_designs",
        model=FGMModel,
        estimator="estimators.fgm:FGMClassifier",
        passes="feature_scores",
        shared="fgm_tune",
    ),
    "group-lasso": MethodInfo(
        name="group-lasso",
        title="Group lasso on a stream of rows",
        config=GroupLassoConfig,
        run="online_run",
        model=LinearModel,
        estimator="estimators.group_lasso:GroupLassoClassifier",
        regressor="estimators.group_lasso:GroupLassoRegressor",
        shared="online_tune",
        passes="moments",
        streams=True,
    ),
    "mkl": MethodInfo(
        name="mkl",
        title="Generalized multiple kernel learning",
        config=MKLConfig,
        run="gmkl_run",
        held="kernel_memory",
        model=KernelModel,
        estimator="estimators.mkl:MKLClassifier",
        regressor="estimators.mkl:MKLRegressor",
        shared="gmkl_tune",
    ),
    "tri-class-svm": MethodInfo(
        name="tri-class-svm",
        title="Tri-class support vector machine",
        config=TriClassConfig,
        run="triclass_run",
        model=KernelModel,
        estimator="estimators.triclass:TriClassSVC",
        inputs=("unlabelled",),
    ),
    "unsupervised-mkl": MethodInfo(
        name="unsupervised-mkl",
        title="Unsupervised multiple kernel learning",
        config=UMKLConfig,
        run="umkl_run",
        model=KernelModel,
        estimator="estimators.umkl:UnsupervisedMKL",
        scored=False,
    ),
    "kta-path": MethodInfo(
        name="kta-path",
        title="Kernel selection path",
        config=KTAPathConfig,
        run="kta_path_run",
        model=KernelModel,
        estimator="estimators.kta_path:KTASelectionPath",
    ),
    "two-layer-mkl": MethodInfo(
        name="two-layer-mkl",
        title="Two-layer multiple kernel learning",
        config=TwoLayerConfig,
        run="two_layer_run",
        model=KernelModel,
        estimator="estimators.two_layer:TwoLayerMKLClassifier",
    ),
    "latent-task-mkl": MethodInfo(
        name="latent-task-mkl",
        title="Multiple kernel learning on latent task structure",
        config=LatentTaskConfig,
        run="latent_tasks_run",
        held="kernel_memory",
        model=TaskModel,
        estimator="estimators.latent_tasks:LatentTaskMKLClassifier",
        regressor="estimators.latent_tasks:LatentTaskMKLRegressor",
        tasks=True,
    ),
    "rule-ensemble": MethodInfo(
        name="rule-ensemble",
        title="Rule ensemble on the lattice of conjunctions",
        config=RuleConfig,
        run="rules_run",
        held="rules_memory",
        model=RuleModel,
        estimator="estimators.rules:RuleEnsembleClassifier",
        passes="propositions",
        missing=True,
        tasks=True,
    ),
    "hierarchical-kernels": MethodInfo(
        name="hierarchical-kernels",
        title="Hierarchical kernel learning",
        config=HKLConfig,
        run="hkl_run",
        model=(KernelModel, TaskModel),
        estimator="estimators.hierarchical:HierarchicalKernelClassifier",
        regressor="estimators.hierarchical:HierarchicalKernelRegressor",
        tasks=True,
    ),
    "multitask-mkl": MethodInfo(
        name="multitask-mkl",
        title="Multiple kernel learning for many tasks",
        config=MultiTaskMKLConfig,
        run="multitask_run",
        model=TaskModel,
        estimator="estimators.multitask:MultiTaskMKLClassifier",
        regressor="estimators.multitask:MultiTaskMKLRegressor",
        passes="task_solves",
        tasks=True,
        shared="multitask_tune",
    ),
    "shared-subspace-mkl": MethodInfo(
        name="shared-subspace-mkl",
        title="Multiple kernel learning in a subspace that tasks share",
        config=SharedSubspaceConfig,
        run="shared_subspace_run",
        model=TaskModel,
        estimator="estimators.shared_subspace:SharedSubspaceMKLClassifier",
        regressor="estimators.shared_subspace:SharedSubspaceMKLRegressor",
        tasks=True,
    ),
    "multitask-selector": MethodInfo(
        name="multitask-selector",
        title="Feature selection over many tasks",
        config=SelectorConfig,
        run="selector_run",
        held="selector_setup",
        model=LinearModel,
        estimator="estimators.selector:MultiTaskSelector",
        passes="columns",
        tasks=True,
    ),
    "npkl": MethodInfo(
        name="npkl",
        title="Non-parametric kernel from pairs of rows",
        config=NPKLConfig,
        run="npkl_run",
        held="npkl",
        model=SpectralModel,
        estimator="estimators.npkl:SimpleNPKL",
        passes="neighbours",
        inputs=("constraints",),
        needs=("constraints",),
        scored=False,
    ),
    "colored-mvu": MethodInfo(
        name="colored-mvu",
        title="Coloured maximum variance unfolding",
        config=ColoredMVUConfig,
        run="embedding_run",
        model=SpectralModel,
        estimator="estimators.embedding:ColoredMVU",
        passes="neighbours",
        scored=False,
    ),
    "mve": MethodInfo(
        name="mve",
        title="Minimum volume embedding",
        config=MVEConfig,
        run="embedding_run",
        model=SpectralModel,
        estimator="estimators.embedding:MinimumVolumeEmbedding",
        passes="neighbours",
        scored=False,
    ),
    "spe": MethodInfo(
        name="spe",
        title="Structure preserving embedding",
        config=SPEConfig,
        run="embedding_run",
        model=SpectralModel,
        estimator="estimators.embedding:StructurePreservingEmbedding",
        passes="neighbours",
        scored=False,
    ),
    "semantic-ranker": MethodInfo(
        name="semantic-ranker",
        title="Re-ranking of images by looks and tags",
        config=RankerConfig,
        run="kernel_ranking_run",
        model=SpectralModel,
        estimator="estimators.ranker:SemanticKernelRanker",
        passes="neighbours",
        inputs=("tags",),
        needs=("tags",),
        scored=False,
    ),
    "social-strength": MethodInfo(
        name="social-strength",
        title="Strength of ties between users",
        config=SocialConfig,
        run="social_strength_run",
        model=SocialModel,
        estimator="estimators.social:SocialStrengthRanker",
        passes="views",
        inputs=("pairs",),
        needs=("pairs",),
        scored=False,
    ),
}
