"""
Watch a certificate close over kernels nobody listed
====================================================

With 20 columns there are a million subsets. The fit works on a few dozen of them and shows after every round how far the rest could still
lower the objective.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from gramplane import HierarchicalKernelClassifier

X, y = load_breast_cancer(return_X_y=True)
X, X_test, y, y_test = train_test_split(
    X[:, :20], y, train_size=200, random_state=0, stratify=y
)
model = HierarchicalKernelClassifier(
    "subsets(gaussian)", C=10, tol=0.001, scale="standard"
).fit(X, y)
steps, history = np.arange(1, model.n_iter_ + 1), model.history_
figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
axes.semilogy(
    steps,
    history["restricted_gap"],
    "s:",
    color="tab:orange",
    label="over the working set",
)
axes.semilogy(
    steps,
    history["gap"],
    "o",
    color="tab:blue",
    markersize=9,
    label="over all 1,048,576 subsets",
)
axes.set(
    xlabel="step", ylabel="gap", title="Certified distance to the optimum", xticks=steps
)
axes.legend()

# %%
# Notice the last point, which speaks of all subsets: the search over them is made when the working set itself is solved.
where = (
    "all subsets"
    if model.certificate_depth_ is None
    else f"subsets of up to {model.certificate_depth_} columns"
)
print(
    f"gap {100 * model.certificate_:.2f} % of the objective over {where}; working set of {len(model.active_set_)}"
)
sizes = np.bincount(model.nodes_[model.kernel_weights_ > 0].astype(bool).sum(axis=1))
print(
    f"subsets with weight by size (from 0): {sizes.tolist()}; test accuracy {model.score(X_test, y_test):.3f}"
)
