"""
Which traces tell who is close to whom?
=======================================

Pictures, tags, comments, groups, places, favourites: a community leaves many traces. Views are weighed by how well they align with ties
that are known.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from gramplane import SocialStrengthRanker
from gramplane.datasets import social_graph

made = social_graph(160, n_test=40, seed=0)
names = np.array(["visual", "text", "comment", "group", "contact", "location", "fave"])
use = names != "contact"  # the ties themselves are what is asked for
rng, known = np.random.default_rng(0), ~made.held_out
linked = np.argwhere(np.triu(made.contacts, 1) & known[:, None] & known[None, :])
strangers = np.argwhere(np.triu(~made.contacts, 1) & known[:, None] & known[None, :])
pairs = np.concatenate([linked, rng.choice(strangers, len(linked), replace=False)])
z = np.repeat([1, 0], len(linked))
model = SocialStrengthRanker().fit(made.views[use], pairs, z)
print(
    dict(
        zip(
            names[use].tolist(),
            np.round(model.kernel_weights_, 3).tolist(),
            strict=True,
        )
    )
)

# %%
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.4), sharey=True, layout="constrained"
)
left.barh(names[use], model.alignments_, color="#E69F00")
left.set(xlabel="alignment of a view with the ties")
right.barh(names[use], model.kernel_weights_, color="#0072B2")
right.set(xlabel="weight in the sum")

# %%
# Notice that favourites, which are pure noise here, and pictures, which are nearly so, get little or nothing. The sum is aligned better
# than any view alone:
print(f"best view {model.alignments_.max():.3f}, weighted sum {model.alignment_:.3f}")
