"""
Weight the traces that show who is close
========================================

Each kind of trace gets a weight by how well it agrees with known ties: images,
tags, comments, groups, places or favourites. Noise gets little weight or none.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from gramplane import SocialStrengthRanker
from gramplane.datasets import social_graph

made = social_graph(160, n_test=40, seed=0)
names = np.array(
    ["visual", "text", "comment", "group", "contact", "location", "fave"]
)
use = names != "contact"  # these are the ties to predict
rng, known = np.random.default_rng(0), ~made.held_out
linked = np.argwhere(
    np.triu(made.contacts, 1) & known[:, None] & known[None, :]
)
strangers = np.argwhere(
    np.triu(~made.contacts, 1) & known[:, None] & known[None, :]
)
pairs = np.concatenate(
    [linked, rng.choice(strangers, len(linked), replace=False)]
)
z = np.repeat([1, 0], len(linked))
model = SocialStrengthRanker().fit(made.views[use], pairs, z)

# %%
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.4), sharey=True, layout="constrained"
)
left.barh(names[use], model.alignments_, color="#E69F00")
left.set(xlabel="alignment with the ties")
right.barh(names[use], model.kernel_weights_, color="#0072B2")
right.set(xlabel="weight in the sum")

# %%
# Favourites are pure noise here, and images nearly so. The weighted sum agrees
# with the ties slightly better than the best view:
print(f"alignment of the best view: {model.alignments_.max():.3f}")
print(f"alignment of the weighted sum: {model.alignment_:.3f}")
