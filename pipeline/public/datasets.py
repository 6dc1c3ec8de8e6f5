"""Data made by formula, with what was planted in them: for examples, tests and benchmarks."""

from . import lazy_names

_HOMES = {
    "dense_groups": "pipeline.synthetic.linear",
    "dense_linear": "pipeline.synthetic.linear",
    "patients": "pipeline.synthetic.patients",
    "planted_images": "pipeline.synthetic.images",
    "social_graph": "pipeline.synthetic.social_graph",
    "sparse_linear": "pipeline.synthetic.linear",
}

__all__ = sorted(_HOMES)
__getattr__ = lazy_names(__name__, _HOMES)
