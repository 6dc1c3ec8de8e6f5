"""
Read interactions off a regression
==================================

Friedman's function has one interaction, :math:`\\sin(\\pi x_0 x_1)`, three columns that add up, and columns of noise. Which subsets of
columns get weight?
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm
from sklearn.datasets import make_friedman1

from gramplane import HierarchicalKernelRegressor

X, y = make_friedman1(200, n_features=8, noise=1.0, random_state=0)
X_test, y_test = make_friedman1(1000, n_features=8, noise=0.0, random_state=1)
model = HierarchicalKernelRegressor(
    "subsets(gaussian; depth=2)", loss="squared", C=10, tol=0.02, scale=None
).fit(X, y)

# %%
# Pairs as a picture, single columns on the diagonal.
shown = np.full((8, 8), np.nan)
for node, weight in zip(model.nodes_, model.kernel_weights_, strict=True):
    columns = np.flatnonzero(node)
    if columns.size:
        shown[columns[-1], columns[0]] = weight
figure, axes = plt.subplots(figsize=(4.8, 4), layout="constrained")
picture = axes.imshow(shown, cmap="viridis", norm=PowerNorm(0.4, vmin=0))
axes.set(
    title="Kernel weights: pairs, and columns (diagonal)",
    xlabel="column",
    ylabel="column",
)
figure.colorbar(picture, ax=axes)

# %%
# Notice the field of columns 0 and 1: of all pairs it is the brightest. White fields are not in the working set: nothing there promised
# to be worth it.
weights, sizes = (
    np.asarray(model.kernel_weights_),
    np.array([np.count_nonzero(node) for node in model.nodes_]),
)
best = np.flatnonzero(sizes == 2)[np.argmax(weights[sizes == 2])]
print(f"heaviest pair: columns {np.flatnonzero(model.nodes_[best]).tolist()}")
print(f"R2 on 1,000 rows without noise: {model.score(X_test, y_test):.3f}")
print(
    f"{len(model.active_set_)} of 37 kernels in the working set; the gap holds for all: {100 * model.certificate_:.2f} % of the objective"
)
