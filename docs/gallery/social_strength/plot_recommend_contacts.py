"""
Recommend contacts to new users
===============================

For users whose ties are not known, ten recommendations by learned strength
have four times as many real contacts as ten random ones. The strength of ties
is learned from the rest of the community.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from gramplane import SocialStrengthRanker
from gramplane.datasets import social_graph

made = social_graph(160, n_test=40, seed=0)
views = np.delete(made.views, 4, axis=0)  # without the contacts themselves
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
model = SocialStrengthRanker().fit(
    views, pairs, np.repeat([1, 0], len(linked))
)

# %%
# For every length of the list: the share of the real contacts that are on it.
users = np.flatnonzero(made.held_out)
ranked = {
    "learned strength": [model.recommend(u, 159) for u in users],
    "weighted sum of the views": [
        model.recommend(u, 159, direct=True) for u in users
    ],
    "favourites only": [
        np.delete(np.argsort(-views[5][u], kind="stable"), 0) for u in users
    ],
    "at random": [
        rng.permutation(np.delete(np.arange(160), u)) for u in users
    ],
}
figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
for (name, lists), style, colour in zip(
    ranked.items(),
    ("-", "--", "-.", ":"),
    ("#0072B2", "#D55E00", "#009E73", "black"),
    strict=True,
):
    hits = (
        np.sum(
            [
                np.cumsum(made.contacts[u, order])
                for u, order in zip(users, lists, strict=True)
            ],
            axis=0,
        )
        / made.contacts[users].sum()
    )
    axes.plot(
        np.arange(1, 160), hits, style, color=colour, linewidth=2, label=name
    )
    print(f"{name:25s} {hits[9]:5.1%} of contacts in the first ten")
axes.set(
    xlabel="length of the list of recommendations",
    ylabel="share of real contacts found",
    title="Forty users without known ties",
)
axes.legend()

# %%
# ``direct=True`` ranks by the weighted sum of the views, without learning to
# rank pairs. In this community the weights do nearly all of the work.
