"""Synthetic data with known relevant features, for examples, tests and benchmarks."""

from typing import TYPE_CHECKING

from . import lazy_names

if TYPE_CHECKING:
    from gramplane.pipeline.synthetic.images import planted_images as planted_images
    from gramplane.pipeline.synthetic.linear import dense_groups as dense_groups
    from gramplane.pipeline.synthetic.linear import dense_linear as dense_linear
    from gramplane.pipeline.synthetic.linear import sparse_linear as sparse_linear
    from gramplane.pipeline.synthetic.patients import patients as patients
    from gramplane.pipeline.synthetic.social_graph import social_graph as social_graph

_HOMES = {
    "dense_groups": "pipeline.synthetic.linear",
    "dense_linear": "pipeline.synthetic.linear",
    "patients": "pipeline.synthetic.patients",
    "planted_images": "pipeline.synthetic.images",
    "social_graph": "pipeline.synthetic.social_graph",
    "sparse_linear": "pipeline.synthetic.linear",
}

__all__ = sorted(_HOMES)
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)
