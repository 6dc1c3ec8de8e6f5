"""
Which columns act together? Products over subsets
=================================================

Eight columns have 256 subsets, each with a kernel: the product of Gaussians of its columns. Hierarchical kernel learning looks at a subset
only if smaller ones inside it are worth something, and certifies that it missed none.
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
    xlabel="kernel weight", ylabel="subset of columns", title="The heaviest subsets"
)

# %%
# Notice the subset at the top, and how few were looked at:
print(
    f"{len(model.active_set_)} of 256 subsets in the working set; certified to a share of {model.certificate_:.4f} of the objective"
)
print(f"test accuracy {model.score(X_test, y_test):.3f}")
