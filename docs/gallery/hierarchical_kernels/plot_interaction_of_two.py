"""
Find columns that act together
==============================

Hierarchical kernel learning finds interactions of columns: it searches kernels
on all subsets of columns. Eight columns have 256 subsets. The search looks at
a subset only if its smaller parts help, and certifies that it missed none.
"""

# %%
# The class is the sign of a product: columns 2 and 5 matter only together.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import HierarchicalKernelClassifier

rng = np.random.default_rng(0)
X, X_test = rng.standard_normal((200, 8)), rng.standard_normal((1000, 8))
y, y_test = (part[:, 2] * part[:, 5] > 0 for part in (X, X_test))
model = HierarchicalKernelClassifier(
    "subsets(gaussian)", C=10, tol=0.01, scale=None
).fit(X, y)

# %%
order = np.argsort(model.kernel_weights_)[-8:]
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
names = [
    "{" + ", ".join(str(j) for j in np.flatnonzero(model.nodes_[k])) + "}"
    for k in order
]
axes.barh(names, model.kernel_weights_[order], color="tab:blue")
axes.set(
    xlabel="kernel weight",
    ylabel="subset of columns",
    title="Subsets with the largest weights",
)

# %%
# The pair {2, 5} has the largest weight, and the search looked at few subsets:
print(f"{len(model.active_set_)} of 256 subsets were in the working set")
print(f"certified within {model.certificate_:.1%} of the optimum over all")
print(f"test accuracy {model.score(X_test, y_test):.3f}")
