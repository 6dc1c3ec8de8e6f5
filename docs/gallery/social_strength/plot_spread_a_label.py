"""
Spread what few people said over a network
==========================================

Eight users told whether they like jazz. Friends are alike: a label spreads along strong ties, and gives an opinion for everybody.
"""

# %%
# Taste follows the hidden communities; labels of 16 of 160 users are known.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

from gramplane import SocialStrengthRanker
from gramplane.datasets import social_graph

made = social_graph(160, n_test=0, seed=0)
rng, views = np.random.default_rng(0), np.delete(made.views, 4, axis=0)
linked, strangers = (
    np.argwhere(np.triu(made.contacts, 1)),
    np.argwhere(np.triu(~made.contacts, 1)),
)
pairs = np.concatenate([linked, rng.choice(strangers, len(linked), replace=False)])
model = SocialStrengthRanker().fit(views, pairs, np.repeat([1, 0], len(linked)))
likes = (made.communities[:, :4].sum(axis=1) > 0.5).astype(float)

scores = {}
for number in (4, 8, 16, 32, 64):
    areas = []
    for draw in range(5):
        told = np.concatenate(
            [
                np.random.default_rng(draw).permutation(np.flatnonzero(likes == c))[
                    : number // 2
                ]
                for c in (0, 1)
            ]
        )
        labels = np.full(160, np.nan)
        labels[told] = likes[told]
        rest = np.setdiff1d(np.arange(160), told)
        areas.append(roc_auc_score(likes[rest], model.label_users(labels)[rest]))
    scores[number] = areas

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.5), layout="constrained")
axes.semilogx(list(scores), list(scores.values()), ".", color="#999999")
axes.semilogx(
    list(scores),
    [np.mean(a) for a in scores.values()],
    "o-",
    color="#0072B2",
    label="mean of five draws",
)
axes.axhline(0.5, color="black", linestyle=":", label="guessing")
axes.set_xticks(list(scores), [str(k) for k in scores])
axes.minorticks_off()
axes.set(
    xlabel="users who told",
    ylabel="area under the curve, the others",
    title="A taste, spread along ties",
    ylim=(0.4, 1),
)
axes.legend(loc="lower right")

# %%
# Notice how much the first few are worth, and how much depends on who they are (grey points).
print({number: round(float(np.mean(areas)), 3) for number, areas in scores.items()})
