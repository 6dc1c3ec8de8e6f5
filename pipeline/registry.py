"""METHODS: everything the command line, the workflows and the test batteries know of a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .methods.embeddings.config import ColoredMVUConfig, MVEConfig, SPEConfig
from .methods.fgm.config import FGMConfig
from .methods.fgm.model import FGMModel
from .methods.group_lasso.config import GroupLassoConfig
from .methods.hierarchical_kernels.config import HKLConfig
from .methods.kta_path.config import KTAPathConfig
from .methods.latent_task_mkl.config import LatentTaskConfig
from .methods.mkl.config import MKLConfig
from .methods.multitask_mkl.config import MultiTaskMKLConfig
from .methods.multitask_selector.config import SelectorConfig
from .methods.npkl.config import NPKLConfig
from .methods.rule_ensemble.config import RuleConfig
from .methods.rule_ensemble.model import RuleModel
from .methods.semantic_ranker.config import RankerConfig
from .methods.shared_subspace_mkl.config import SharedSubspaceConfig
from .methods.social_strength.config import SocialConfig
from .methods.social_strength.model import SocialModel
from .methods.tri_class_svm.config import TriClassConfig
from .methods.two_layer_mkl.config import TwoLayerConfig
from .methods.unsupervised_mkl.config import UMKLConfig
from .models.kernel import KernelModel
from .models.linear import LinearModel
from .models.spectral import SpectralModel
from .models.task import TaskModel
from .records.config import MethodConfig
from .records.context import RunContext
from .records.holdings import Held

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
        Module under ``gramplane.pipeline`` that prepares its runs; loaded when one begins.
    passes
        Module under ``gramplane.pipeline`` whose block programs a worker loads before its memory is measured.
    tasks
        Whether it fits the tasks of a store that has them.
    scored
        Whether its fits are scored on rows held out, so that settings can be compared.
    shared
        Module under ``gramplane.pipeline`` with ``shared_loops`` and ``table_rows``, where the fits of a grid share passes; by
        default they are done one after another.
    held
        Module under ``gramplane.pipeline`` that declares what its driver may hold; that of its runs by default.
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
    passes: str = "grams.grams"
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
        return import_module(f".{self.held or self.run}", __package__).HELD

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
        return import_module(f".{self.run}", __package__).prepare(config, ctx, extra)


METHODS: dict[str, MethodInfo] = {
    "fgm": MethodInfo(
        name="fgm",
        title="Feature Generating Machine",
        config=FGMConfig,
        run="methods.fgm.method",
        held="methods.fgm.designs",
        model=FGMModel,
        estimator="methods.fgm.estimator:FGMClassifier",
        passes="methods.fgm.score_pass",
        shared="methods.fgm.grid",
    ),
    "group-lasso": MethodInfo(
        name="group-lasso",
        title="Group lasso on a stream of rows",
        config=GroupLassoConfig,
        run="methods.group_lasso.method",
        model=LinearModel,
        estimator="methods.group_lasso.estimator:GroupLassoClassifier",
        regressor="methods.group_lasso.estimator:GroupLassoRegressor",
        shared="methods.group_lasso.grid",
        passes="methods.group_lasso.moments_pass",
        streams=True,
    ),
    "mkl": MethodInfo(
        name="mkl",
        title="Generalized multiple kernel learning",
        config=MKLConfig,
        run="methods.mkl.method",
        held="inputs.memory",
        model=KernelModel,
        estimator="methods.mkl.estimator:MKLClassifier",
        regressor="methods.mkl.estimator:MKLRegressor",
        shared="methods.mkl.grid",
    ),
    "tri-class-svm": MethodInfo(
        name="tri-class-svm",
        title="Tri-class support vector machine",
        config=TriClassConfig,
        run="methods.tri_class_svm.method",
        model=KernelModel,
        estimator="methods.tri_class_svm.estimator:TriClassSVC",
        inputs=("unlabelled",),
    ),
    "unsupervised-mkl": MethodInfo(
        name="unsupervised-mkl",
        title="Unsupervised multiple kernel learning",
        config=UMKLConfig,
        run="methods.unsupervised_mkl.method",
        model=KernelModel,
        estimator="methods.unsupervised_mkl.estimator:UnsupervisedMKL",
        scored=False,
    ),
    "kta-path": MethodInfo(
        name="kta-path",
        title="Kernel selection path",
        config=KTAPathConfig,
        run="methods.kta_path.method",
        model=KernelModel,
        estimator="methods.kta_path.estimator:KTASelectionPath",
    ),
    "two-layer-mkl": MethodInfo(
        name="two-layer-mkl",
        title="Two-layer multiple kernel learning",
        config=TwoLayerConfig,
        run="methods.two_layer_mkl.method",
        model=KernelModel,
        estimator="methods.two_layer_mkl.estimator:TwoLayerMKLClassifier",
    ),
    "latent-task-mkl": MethodInfo(
        name="latent-task-mkl",
        title="Multiple kernel learning on latent task structure",
        config=LatentTaskConfig,
        run="methods.latent_task_mkl.method",
        held="inputs.memory",
        model=TaskModel,
        estimator="methods.latent_task_mkl.estimator:LatentTaskMKLClassifier",
        regressor="methods.latent_task_mkl.estimator:LatentTaskMKLRegressor",
        tasks=True,
    ),
    "rule-ensemble": MethodInfo(
        name="rule-ensemble",
        title="Rule ensemble on the lattice of conjunctions",
        config=RuleConfig,
        run="methods.rule_ensemble.method",
        held="methods.rule_ensemble.memory",
        model=RuleModel,
        estimator="methods.rule_ensemble.estimator:RuleEnsembleClassifier",
        passes="methods.rule_ensemble.proposition_pass",
        missing=True,
        tasks=True,
    ),
    "hierarchical-kernels": MethodInfo(
        name="hierarchical-kernels",
        title="Hierarchical kernel learning",
        config=HKLConfig,
        run="methods.hierarchical_kernels.method",
        model=(KernelModel, TaskModel),
        estimator="methods.hierarchical_kernels.estimator:HierarchicalKernelClassifier",
        regressor="methods.hierarchical_kernels.estimator:HierarchicalKernelRegressor",
        tasks=True,
    ),
    "multitask-mkl": MethodInfo(
        name="multitask-mkl",
        title="Multiple kernel learning for many tasks",
        config=MultiTaskMKLConfig,
        run="methods.multitask_mkl.method",
        model=TaskModel,
        estimator="methods.multitask_mkl.estimator:MultiTaskMKLClassifier",
        regressor="methods.multitask_mkl.estimator:MultiTaskMKLRegressor",
        passes="methods.multitask_mkl.solve_pass",
        tasks=True,
        shared="methods.multitask_mkl.grid",
    ),
    "shared-subspace-mkl": MethodInfo(
        name="shared-subspace-mkl",
        title="Multiple kernel learning in a subspace that tasks share",
        config=SharedSubspaceConfig,
        run="methods.shared_subspace_mkl.method",
        model=TaskModel,
        estimator="methods.shared_subspace_mkl.estimator:SharedSubspaceMKLClassifier",
        regressor="methods.shared_subspace_mkl.estimator:SharedSubspaceMKLRegressor",
        tasks=True,
    ),
    "multitask-selector": MethodInfo(
        name="multitask-selector",
        title="Feature selection over many tasks",
        config=SelectorConfig,
        run="methods.multitask_selector.method",
        held="methods.multitask_selector.inputs",
        model=LinearModel,
        estimator="methods.multitask_selector.estimator:MultiTaskSelector",
        passes="passes.columns",
        tasks=True,
    ),
    "npkl": MethodInfo(
        name="npkl",
        title="Non-parametric kernel from pairs of rows",
        config=NPKLConfig,
        run="methods.npkl.method",
        held="methods.npkl.loop",
        model=SpectralModel,
        estimator="methods.npkl.estimator:SimpleNPKL",
        passes="grams.neighbours",
        inputs=("constraints",),
        needs=("constraints",),
        scored=False,
    ),
    "colored-mvu": MethodInfo(
        name="colored-mvu",
        title="Coloured maximum variance unfolding",
        config=ColoredMVUConfig,
        run="methods.embeddings.method",
        model=SpectralModel,
        estimator="methods.embeddings.estimator:ColoredMVU",
        passes="grams.neighbours",
        scored=False,
    ),
    "mve": MethodInfo(
        name="mve",
        title="Minimum volume embedding",
        config=MVEConfig,
        run="methods.embeddings.method",
        model=SpectralModel,
        estimator="methods.embeddings.estimator:MinimumVolumeEmbedding",
        passes="grams.neighbours",
        scored=False,
    ),
    "spe": MethodInfo(
        name="spe",
        title="Structure preserving embedding",
        config=SPEConfig,
        run="methods.embeddings.method",
        model=SpectralModel,
        estimator="methods.embeddings.estimator:StructurePreservingEmbedding",
        passes="grams.neighbours",
        scored=False,
    ),
    "semantic-ranker": MethodInfo(
        name="semantic-ranker",
        title="Re-ranking of images by looks and tags",
        config=RankerConfig,
        run="methods.semantic_ranker.method",
        model=SpectralModel,
        estimator="methods.semantic_ranker.estimator:SemanticKernelRanker",
        passes="grams.neighbours",
        inputs=("tags",),
        needs=("tags",),
        scored=False,
    ),
    "social-strength": MethodInfo(
        name="social-strength",
        title="Strength of ties between users",
        config=SocialConfig,
        run="methods.social_strength.method",
        model=SocialModel,
        estimator="methods.social_strength.estimator:SocialStrengthRanker",
        passes="methods.social_strength.view_pass",
        inputs=("pairs",),
        needs=("pairs",),
        scored=False,
    ),
}
