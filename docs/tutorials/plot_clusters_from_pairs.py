"""
Groups from a few pairs somebody knew
=====================================

There are no labels, but somebody looked at a few pairs of pictures and said "the same" or "not the same". This page clusters five kinds of
digits that k-means mixes up, and counts what each answer is worth.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from gramplane import MinimumVolumeEmbedding, SimpleNPKL

images, digits = load_digits(return_X_y=True)
chosen = np.concatenate([np.flatnonzero(digits == d)[:60] for d in (1, 4, 7, 8, 9)])
X, y = images[chosen], digits[chosen]
plain = KMeans(5, n_init=10, random_state=0).fit_predict(X)
print(f"k-means without pairs: adjusted Rand score {adjusted_rand_score(y, plain):.3f}")


def ask(n, seed):
    """Return n pairs with what somebody said of them."""
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
# One kernel from 100 pairs
# -------------------------
# Pairs imply others: who belongs to a belongs to whoever a belongs to. ``closure=True`` adds them.
model = SimpleNPKL(C=0.3, n_neighbors=8, graph="union", closure=True).fit(
    X, ask(100, seed=0)
)
clusters = model.cluster(5, normalize=True)
print(
    f"kernel from pairs: {adjusted_rand_score(y, clusters):.3f}; 100 answers made {len(model.constraints_)} constraints"
)

# %%
# Both answers on one map of the pictures
places = MinimumVolumeEmbedding(
    n_neighbors=8, graph="union", tol=3e-2, max_iter=10
).fit_transform(X)
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
palette = np.array(["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"])
for ax, labels, name in zip(
    axes,
    (y, plain, clusters),
    ("digits", "k-means", "kernel from 100 pairs"),
    strict=True,
):
    codes = np.unique(labels, return_inverse=True)[1]
    for c in range(5):
        # The letter of a point is its digit, its colour the cluster: a cluster is good where letters of one colour are alike.
        ax.scatter(
            *places[codes == c].T,
            s=45,
            color=palette[c],
            marker="o",
            alpha=0.35,
            linewidths=0,
        )
    for place, digit in zip(places, y, strict=True):
        ax.annotate(str(digit), place, fontsize=6, ha="center", va="center")
    ax.set(title=name, xticks=[], yticks=[])

# %%
# How many pairs are worth asking for?
numbers, scores = (25, 50, 100, 200), []
for number in numbers:
    fits = [
        SimpleNPKL(C=0.3, n_neighbors=8, graph="union", closure=True).fit(
            X, ask(number, seed)
        )
        for seed in range(2)
    ]
    scores.append(
        [adjusted_rand_score(y, fit.cluster(5, normalize=True)) for fit in fits]
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
    xlabel="answers",
    ylabel="adjusted Rand score",
    title="What an answer is worth (points: two draws)",
)
axes.legend()

# %%
# What to try when it is bad
# --------------------------
# * **One cluster has nearly all rows**: keep ``normalize=True`` of ``cluster``; lengths of rows differ a lot.
# * **Pairs are obeyed and nothing else**: ``C`` is too large. 0.1 to 0.5 lets the graph of neighbours speak.
# * **"rows have no neighbour" is warned of**: ``graph="union"`` or more ``n_neighbors``.
# * **Answers contradict each other**: with ``closure=True`` the fit names such a pair.
# * **Thousands of rows**: the block of eigenvectors moves to tiles on disk by itself (``run_on="local:4"``).
