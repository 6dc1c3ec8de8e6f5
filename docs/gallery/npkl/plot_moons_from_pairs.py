"""
Cluster with a few hints
========================

Somebody knows of sixty pairs of rows whether they belong together. The learnt kernel follows these pairs and is smooth along the graph of
neighbours, so a hint reaches rows that nobody spoke of.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_moons
from sklearn.metrics import rand_score

from gramplane import SimpleNPKL

X, y = make_moons(200, noise=0.1, random_state=0)
i, j = np.random.default_rng(0).integers(0, 200, (2, 60))
pairs = [(a, b, 1 if y[a] == y[b] else -1) for a, b in zip(i, j, strict=True) if a != b]
model = SimpleNPKL(C=0.2, n_neighbors=8).fit(X, pairs)
labels = {
    "k-means, no hints": KMeans(2, n_init=5, random_state=0).fit_predict(X),
    "kernel from 60 pairs": model.cluster(2),
}

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, (name, clusters) in zip(axes, labels.items(), strict=True):
    for a, b, sign in pairs:
        ax.plot(
            *X[[a, b]].T,
            "-" if sign > 0 else ":",
            color="#009E73" if sign > 0 else "#999999",
            linewidth=0.6,
            zorder=0,
        )
    for c, marker, colour in ((0, "o", "#0072B2"), (1, "^", "#D55E00")):
        ax.scatter(*X[clusters == c].T, s=16, marker=marker, c=colour)
    ax.set_title(f"{name}: Rand score {rand_score(y, clusters):.3f}")

# %%
# Notice the lines: solid ones say "together", dotted ones "apart". They touch about half of the rows; the others follow their neighbours.
print(
    f"rows in some pair: {len(np.unique([p[:2] for p in pairs]))} of 200; gap {model.dual_gap_:.1e} of {abs(model.objective_):.2f}"
)
