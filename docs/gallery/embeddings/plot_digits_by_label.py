"""
A map of digits that listens to labels
======================================

Coloured maximum variance unfolding keeps the distances of neighbours, pulls everything else apart, and lays rows of one label on one side.
It is a picture of what is near *and* what it means.
"""

# %%
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

from gramplane import ColoredMVU
from gramplane.plots import MapDisplay

images, digits = load_digits(return_X_y=True)
chosen = np.flatnonzero(np.isin(digits, [0, 1, 4, 7]))[:140]
X, y = images[chosen], digits[chosen]
model = ColoredMVU(n_neighbors=12, C=100, graph="union", tol=1e-3).fit(X, y)
MapDisplay.from_estimator(model, labels=y)

# %%
# Notice that neighbours stay neighbours although labels pull. ``C`` says how firmly distances of neighbours are kept: at 1, the default,
# labels draw the rows of a digit into a clump. Neighbours on the map, against those on two principal components:
for name, places in (
    ("coloured map", model.embedding_),
    ("principal components", PCA(2).fit_transform(X)),
):
    votes = [
        KNeighborsClassifier(5)
        .fit(np.delete(places, k, 0), np.delete(y, k))
        .predict(places[[k]])[0]
        for k in range(140)
    ]
    print(
        f"{name}: five neighbours are right about {np.mean(votes == y):.3f} of the pictures"
    )
print(
    f"share of the kernel on the map: {model.map_share_:.3f}; gap {model.dual_gap_:.1e} of {model.objective_:.2f}"
)
