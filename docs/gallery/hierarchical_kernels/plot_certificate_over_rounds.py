"""
Certify a fit over a million kernels
====================================

The fit works with a few dozen kernels, and its certificate covers all of them:
20 columns have 1,048,576 subsets, each with a kernel.
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
    label="over all subsets",
)
axes.set(
    xlabel="step",
    ylabel="gap to the optimum",
    title="A certificate closes",
    xticks=steps,
)
axes.legend()

# %%
# The certificate over all subsets comes with the last steps: the fit searches
# them once the working set is solved.
where = (
    "all subsets"
    if model.certificate_depth_ is None
    else f"subsets of up to {model.certificate_depth_} columns"
)
print(f"within {model.certificate_:.2%} of the optimum over {where}")
print(f"working set: {len(model.active_set_)} subsets")
sizes = model.nodes_[model.kernel_weights_ > 0].astype(bool).sum(axis=1)
print(f"subsets with weight: {sizes.size}", end="; ")
print(f"columns in the largest: {sizes.max()}")
print(f"test accuracy {model.score(X_test, y_test):.3f}")
