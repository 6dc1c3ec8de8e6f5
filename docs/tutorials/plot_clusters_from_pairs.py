"""
Cluster with pairs that somebody compared
=========================================

With 100 answers of the kind "the same" or "not the same", clusters follow the
digits better than those of k-means (adjusted Rand score 0.82, against 0.69).
This page clusters images of five digits that k-means mixes, and shows how many
answers are enough.
"""

# %%
# Cluster without pairs
# ---------------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from gramplane import MinimumVolumeEmbedding, SimpleNPKL

images, digits = load_digits(return_X_y=True)
chosen = np.concatenate(
    [np.flatnonzero(digits == d)[:60] for d in (1, 4, 7, 8, 9)]
)
X, y = images[chosen], digits[chosen]
plain = KMeans(5, n_init=10, random_state=0).fit_predict(X)
score = adjusted_rand_score(y, plain)
print(f"adjusted Rand score of k-means: {score:.3f} (1 is perfect)")


def ask(n, seed):
    """Return n pairs of rows, each with 1 (the same) or -1 (not)."""
    i, j = np.random.default_rng(seed).integers(0, len(y), (2, 4 * n))
    drawn = list(
        dict.fromkeys(
            (min(a, b), max(a, b))
            for a, b in zip(i.tolist(), j.tolist(), strict=True)
            if a != b
        )
    )[:n]
    return [(a, b, 1 if y[a] == y[b] else -1) for a, b in drawn]


# %%
# Learn a kernel from 100 pairs
# -----------------------------
# Pairs imply others: if a and b are the same, and b and c, then a and c are,
# too. ``closure=True`` adds those.
model = SimpleNPKL(C=0.3, n_neighbors=8, graph="union", closure=True).fit(
    X, ask(100, seed=0)
)
clusters = model.cluster(5, normalize=True)
score = adjusted_rand_score(y, clusters)
print(f"adjusted Rand score of the kernel from pairs: {score:.3f}")
print(f"100 answers imply {len(model.constraints_)} pairs")

# %%
# A map of the images: each colour is a digit in the first panel, and a cluster
# in the others.
places = MinimumVolumeEmbedding(
    n_neighbors=8, graph="union", tol=3e-2, max_iter=10
).fit_transform(X)
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
colours = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9")
styles = list(zip("o^sDv", colours, strict=True))
panels = {"digits": y, "k-means": plain, "kernel from 100 pairs": clusters}
for ax, (name, labels) in zip(axes, panels.items(), strict=True):
    for c, (marker, colour) in zip(np.unique(labels), styles, strict=True):
        rows = labels == c
        ax.scatter(*places[rows].T, s=16, color=colour, marker=marker, label=c)
    ax.set(title=name, xticks=[], yticks=[])
axes[0].legend(fontsize=8, ncols=5, loc="lower center")

# %%
# How many answers are enough?
# ----------------------------
numbers, scores = (25, 50, 100, 200), []
for number in numbers:
    fits = [
        SimpleNPKL(C=0.3, n_neighbors=8, graph="union", closure=True).fit(
            X, ask(number, seed)
        )
        for seed in range(2)
    ]
    scores.append(
        [
            adjusted_rand_score(y, fit.cluster(5, normalize=True))
            for fit in fits
        ]
    )
figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
axes.semilogx(
    numbers,
    np.mean(scores, axis=1),
    "o-",
    color="#0072B2",
    label="kernel from pairs, mean of two draws",
)
axes.semilogx(numbers, scores, ".", color="#0072B2", alpha=0.5)
axes.axhline(
    adjusted_rand_score(y, plain),
    color="black",
    linestyle=":",
    label="k-means without pairs",
)
axes.set_xticks(numbers, [str(n) for n in numbers])
axes.minorticks_off()
axes.set(
    xlabel="number of answers",
    ylabel="adjusted Rand score",
    title="More answers, better clusters",
)
axes.legend()

# %%
# What to try when it is bad
# --------------------------
# * **One cluster has nearly all rows**: keep ``normalize=True`` in
#   ``cluster``, because the lengths of rows differ a lot.
# * **The kernel follows the pairs and nothing else**: ``C`` is too large. With
#   0.1 to 0.5, neighbours count, too.
# * **A warning says "rows have no neighbour"**: set ``graph="union"``, or a
#   larger ``n_neighbors``.
# * **Answers contradict each other**: with ``closure=True`` the fit names such
#   a pair.
# * **Thousands of rows**: matrices move to disk by themselves;
#   ``run_on="local:4"`` uses four processes.
