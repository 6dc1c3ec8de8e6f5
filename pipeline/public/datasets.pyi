"""Written by .ci/make_package.py."""

from gramplane.pipeline.synthetic.linear import dense_groups as dense_groups
from gramplane.pipeline.synthetic.linear import dense_linear as dense_linear
from gramplane.pipeline.synthetic.patients import patients as patients
from gramplane.pipeline.synthetic.images import planted_images as planted_images
from gramplane.pipeline.synthetic.social_graph import social_graph as social_graph
from gramplane.pipeline.synthetic.linear import sparse_linear as sparse_linear

__all__ = ['dense_groups', 'dense_linear', 'patients', 'planted_images', 'social_graph', 'sparse_linear']
