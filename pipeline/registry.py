"""METHODS: the list of all methods. It contains strings only, so that importing it is fast; all else is in the folder of each method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.resources import RunContext
    from .records.charts import SystemCharts
    from .records.config import MethodConfig
    from .records.declared import ExtraInput, Profile


@dataclass(frozen=True)
class MethodInfo:
    """A method by name.

    ``estimator`` and ``regressor`` name scikit-learn classes in ``estimator.py``. If a method has both, ``regressor`` is for numeric
    targets, and a run chooses the class by the target of its store.

    Examples
    --------
    >>> from gramplane import METHODS
    >>> METHODS["group-lasso"].estimators
    ('GroupLassoClassifier', 'GroupLassoRegressor')
    >>> METHODS["group-lasso"].config().lam
    'auto'
    """

    name: str  # on the command line
    title: str  # in reports
    system: str  # its folder under `gramplane.pipeline.methods`, or the dotted name of a package elsewhere
    stem: str  # name of its class in `method.py`; that of its parameter model in `config.py` has `Config` behind it
    estimator: str
    regressor: str | None = None
    others: tuple[str, ...] = ()  # further public names of `estimator.py`
    cross_validated: tuple[str, ...] = ()  # classes there that choose their parameters by cross-validation
    one_vs_rest: bool = False  # whether the class is of a method of two classes: of more each is learnt against the rest

    @property
    def package(self) -> str:
        """Dotted name of the method's package."""
        return self.system if "." in self.system else f"{__package__}.methods.{self.system}"

    def module(self, file: str) -> Any:
        """Return a module of the method's package."""
        return import_module(f"{self.package}.{file}")

    @property
    def estimators(self) -> tuple[str, ...]:
        """Names of the scikit-learn classes."""
        return (self.estimator,) if self.regressor is None else (self.estimator, self.regressor)

    @property
    def public_names(self) -> tuple[str, ...]:
        """Public names of ``estimator.py``."""
        return (*self.estimators, *self.cross_validated, *self.others)

    @property
    def extra_inputs(self) -> tuple[ExtraInput, ...]:
        """Inputs of the method in addition to its data."""
        items: tuple[ExtraInput, ...] = getattr(import_module(self.package), "EXTRA_INPUTS", ())
        return tuple(item for item in items if not item.methods or self.name in item.methods)

    @property
    def profile(self) -> Profile | None:
        """Purpose of the method, or ``None`` if it is not declared."""
        profiles: tuple[Profile, ...] = getattr(import_module(self.package), "PROFILES", ())
        return next((profile for profile in profiles if profile.method == self.name), None)

    @cached_property
    def config(self) -> type[MethodConfig]:
        """The model of its parameters."""
        return getattr(self.module("config"), f"{self.stem}Config")

    @cached_property
    def method(self) -> Any:
        """The object that plans and runs the method."""
        found = getattr(self.module("method"), self.stem)
        if self.one_vs_rest:
            from .core.one_vs_rest import OneVsRest

            return OneVsRest(found())
        return found()

    @property
    def has_stability(self) -> bool:
        """Whether the stability of the method's selection can be measured. If so, the method's package has a module ``stability``."""
        return find_spec(f"{self.package}.stability") is not None

    @cached_property
    def charts(self) -> SystemCharts:
        """Charts and texts of the method for reports."""
        if find_spec(f"{self.package}.charts") is not None:
            return self.module("charts").CHARTS
        from .records.charts import SystemCharts

        return SystemCharts()

    def prepare(self, config: MethodConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Any:
        """Return the problem of a run on ``ctx.data``, ready to be iterated.

        Raises ValueError for an input that the method does not take, or a missing required input.
        """
        check_inputs(self, extra)
        problem = self.method.problem(*self.method.read_inputs(config, ctx, extra), ctx)
        getattr(problem, "follow", tuple)()
        return problem


METHODS = {
    info.name: info
    for info in (
        MethodInfo(
            "fgm",
            "Feature Generating Machine",
            "fgm",
            "FGM",
            "FGMClassifier",
            "FGMRegressor",
            ("PathPoint",),
            ("FGMClassifierCV", "FGMRegressorCV"),
        ),
        MethodInfo(
            "group-lasso",
            "Group lasso on a stream of rows",
            "group_lasso",
            "GroupLasso",
            "GroupLassoClassifier",
            "GroupLassoRegressor",
            cross_validated=("GroupLassoClassifierCV", "GroupLassoRegressorCV"),
        ),
        MethodInfo(
            "mkl",
            "Generalized multiple kernel learning",
            "mkl",
            "MKL",
            "MKLClassifier",
            "MKLRegressor",
            cross_validated=("MKLClassifierCV", "MKLRegressorCV"),
        ),
        MethodInfo("tri-class-svm", "Tri-class support vector machine", "tri_class_svm", "TriClass", "TriClassSVC"),
        MethodInfo("unsupervised-mkl", "Unsupervised multiple kernel learning", "unsupervised_mkl", "UMKL", "UnsupervisedMKL"),
        MethodInfo(
            "kta-path",
            "Kernel selection path",
            "kta_path",
            "KTAPath",
            "KTASelectionPath",
            "KTASelectionPathRegressor",
            others=("PathMachine",),
            cross_validated=("KTASelectionPathCV",),
        ),
        MethodInfo(
            "two-layer-mkl",
            "Two-layer multiple kernel learning",
            "two_layer_mkl",
            "TwoLayer",
            "TwoLayerMKLClassifier",
            "TwoLayerMKLRegressor",
            others=("generalization_bound",),
        ),
        MethodInfo(
            "latent-task-mkl",
            "Multiple kernel learning on latent task structure",
            "latent_task_mkl",
            "LatentTask",
            "LatentTaskMKLClassifier",
            "LatentTaskMKLRegressor",
            one_vs_rest=True,
        ),
        MethodInfo(
            "rule-ensemble",
            "Rule ensemble on the lattice of conjunctions",
            "rule_ensemble",
            "Rule",
            "RuleEnsembleClassifier",
            "RuleEnsembleRegressor",
            cross_validated=("RuleEnsembleClassifierCV",),
        ),
        MethodInfo(
            "hierarchical-kernels",
            "Hierarchical kernel learning",
            "hierarchical_kernels",
            "HKL",
            "HierarchicalKernelClassifier",
            "HierarchicalKernelRegressor",
        ),
        MethodInfo(
            "multitask-mkl",
            "Multiple kernel learning for many tasks",
            "multitask_mkl",
            "MultiTaskMKL",
            "MultiTaskMKLClassifier",
            "MultiTaskMKLRegressor",
            cross_validated=("MultiTaskMKLClassifierCV", "MultiTaskMKLRegressorCV"),
        ),
        MethodInfo(
            "shared-subspace-mkl",
            "Multiple kernel learning in a subspace that tasks share",
            "shared_subspace_mkl",
            "SharedSubspace",
            "SharedSubspaceMKLClassifier",
            "SharedSubspaceMKLRegressor",
            one_vs_rest=True,
        ),
        MethodInfo("multitask-selector", "Feature selection over many tasks", "multitask_selector", "Selector", "MultiTaskSelector"),
        MethodInfo("npkl", "Non-parametric kernel from pairs of rows", "npkl", "NPKL", "SimpleNPKL"),
        MethodInfo("colored-mvu", "Coloured maximum variance unfolding", "embeddings", "ColoredMVU", "ColoredMVU"),
        MethodInfo("mve", "Minimum volume embedding", "embeddings", "MVE", "MinimumVolumeEmbedding"),
        MethodInfo("spe", "Structure preserving embedding", "embeddings", "SPE", "StructurePreservingEmbedding"),
        MethodInfo(
            "semantic-ranker",
            "Re-ranking of images by looks and tags",
            "semantic_ranker",
            "Ranker",
            "SemanticKernelRanker",
        ),
        MethodInfo("visual-rank", "Random walk on a similarity", "semantic_ranker", "VisualRank", "VisualRank"),
        MethodInfo("social-strength", "Strength of ties between users", "social_strength", "Social", "SocialStrengthRanker"),
    )
}
"""All methods by command name, each with its title, package and estimators."""


def extra_inputs(scored: bool = False) -> dict[str, tuple[ExtraInput, list[str]]]:
    """Return by name all inputs that methods take besides their data, each with the methods that take it. ``scored``: only inputs of
    methods whose fits can be compared by scores.
    """
    known: dict[str, tuple[ExtraInput, list[str]]] = {}
    for name, info in METHODS.items():
        for item in info.extra_inputs:
            if item.compared or not scored:
                known.setdefault(item.name, (item, []))[1].append(name)
    return known


def check_inputs(info: MethodInfo, extra: Mapping[str, Any], spell: Callable[[str], str] = str) -> None:
    """Check that a method takes all given inputs, and that its required inputs are given.

    Raises ValueError with the input, spelled by ``spell``, and the methods that take it.
    """
    for name, (item, takers) in extra_inputs().items():
        if info.name not in takers and extra.get(name) is not None:
            raise ValueError(f"{spell(name)}: {info.name} does not take {item.what}; methods that do: {', '.join(takers)}")
        if info.name in takers and item.required and extra.get(name) is None:
            raise ValueError(f"{spell(name)}: {info.name} needs {item.what} ({item.flag} FILE)")
