"""
Learn interactions from kernels of single columns
=================================================

The exponential of a sum of kernels contains all their products, so it learns
interactions that a sum of the same kernels cannot.
"""

# %%
# The class changes from field to field of a 3 × 3 board.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import MKLClassifier, TwoLayerMKLClassifier

rng = np.random.default_rng(0)
X, X_test = rng.uniform(0, 3, (400, 2)), rng.uniform(0, 3, (2000, 2))
y, y_test = (
    np.where(np.floor(part).sum(axis=1) % 2, "black", "white")
    for part in (X, X_test)
)
kernels = ["rbf(gamma=4)[0]", "rbf(gamma=4)[1]"]
models = {
    "sum of two kernels": MKLClassifier(kernels, C=10, scale=None).fit(X, y),
    "exponential of the sum": TwoLayerMKLClassifier(
        kernels, C=10, scale=None
    ).fit(X, y),
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
    for label, marker, colour in (
        ("black", "o", "black"),
        ("white", "^", "#B8860B"),
    ):
        ax.scatter(
            *X[y == label].T, s=10, marker=marker, c=colour, label=label
        )
    score = model.score(X_test, y_test)
    ax.set_title(f"{name}\naccuracy {score:.3f}")
    print(f"{name}: test accuracy {score:.3f}")
    ax.set(
        xticks=range(4), yticks=range(4), xlabel="column 0", ylabel="column 1"
    )
axes[0].legend(loc="upper left")

# %%
# Both models have the same two kernels, of one column each.
left, right = models["exponential of the sum"].kernel_weights_
print(f"weights inside the exponential: {left:.2f} and {right:.2f}")
