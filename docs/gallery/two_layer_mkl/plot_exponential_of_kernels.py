"""
A kernel of kernels for twisted classes
=======================================

A sum of kernels can only add what each one sees. The exponential of a sum also has all of their products: with one kernel per column it
sees interactions of columns that no single kernel contains.
"""

# %%
# A board of 3 x 3 fields; the class changes from field to field.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import MKLClassifier, TwoLayerMKLClassifier

rng = np.random.default_rng(0)
X, X_test = rng.uniform(0, 3, (400, 2)), rng.uniform(0, 3, (2000, 2))
y, y_test = (
    np.where(np.floor(part).sum(axis=1) % 2, "black", "white") for part in (X, X_test)
)
kernels = ["rbf(gamma=4)[0]", "rbf(gamma=4)[1]"]
models = {
    "sum of two kernels": MKLClassifier(kernels, C=10, scale=None).fit(X, y),
    "exponential of the sum": TwoLayerMKLClassifier(kernels, C=10, scale=None).fit(
        X, y
    ),
}

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.6, 4.1), layout="constrained")
side = np.linspace(0, 3, 90)
grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    values = model.decision_function(grid).reshape(side.size, side.size)
    ax.contourf(
        side,
        side,
        values,
        levels=[-99, 0, 99],
        colors=["#555555", "#F0E442"],
        alpha=0.35,
    )
    for label, marker, colour in (("black", "o", "black"), ("white", "^", "#B8860B")):
        ax.scatter(*X[y == label].T, s=10, marker=marker, c=colour, label=label)
    ax.set_title(f"{name}: {model.score(X_test, y_test):.3f} right")
    ax.set(xticks=range(4), yticks=range(4), xlabel="column 0", ylabel="column 1")
axes[0].legend(loc="upper left")

# %%
# Notice that both had the same two kernels, of one column each.
print(
    "weights inside the exponential:",
    np.round(models["exponential of the sum"].kernel_weights_, 2).tolist(),
)
