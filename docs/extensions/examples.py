"""The order of the examples on the site, and what stops its build: a warning in an example."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

TUTORIALS = [
    "rules_for_a_doctor",
    "genes",
    "genotypes",
    "text",
    "images_by_views",
    "many_patients_tasks",
    "stream",
    "clusters_from_pairs",
    "beyond_memory",
    "cluster",
    "every_night",
]
GALLERY = {
    "fgm": ["planted_features", "products_of_features", "covariates"],
    "rule_ensemble": ["rules_for_flowers", "how_many_rules"],
    "mkl": ["a_kernel_per_feature", "few_or_many_kernels"],
    "group_lasso": ["groups_along_lam", "sparse_within_groups"],
    "kta_path": ["nonlinear_features", "path_of_kernels"],
    "multitask_selector": ["features_for_all_or_some", "rounds_of_a_stream"],
    "multitask_mkl": ["tasks_choose_together", "digits_for_every_pair"],
    "shared_subspace_mkl": ["who_learns_from_whom", "few_directions"],
    "latent_task_mkl": ["hidden_groups", "penalty_of_size"],
    "hierarchical_kernels": ["interaction_of_two", "certificate_over_rounds"],
    "npkl": ["moons_from_pairs", "learnt_kernel_matrix"],
    "tri_class_svm": ["unlabelled_moons", "neither_class"],
    "unsupervised_mkl": ["weights_without_labels", "samples_that_rebuild"],
    "two_layer_mkl": ["exponential_of_kernels", "when_it_memorises"],
    "social_strength": ["recommend_contacts", "which_view_tells"],
    "semantic_ranker": ["search_results", "new_pictures"],
    "embeddings": ["open_a_sheet", "wines_by_label", "map_of_a_graph"],
}
ORDER = [f"plot_{name}.py" for names in (TUTORIALS, *GALLERY.values()) for name in names]


def place(name: str) -> int:
    """Return the place of a script among all; one that is not listed stops the build."""
    return ORDER.index(Path(name).name)


def stop_at_warnings(gallery_conf: dict[str, Any], name: str, when: str) -> None:
    """Turn warnings for users into errors while an example runs."""
    warnings.simplefilter("error" if when == "before" else "default", UserWarning)
