"""
Let the machine add kernels that were not offered
=================================================

Which width of a Gaussian is right is rarely known. With ``infinite=True`` the machine looks along all widths of a range and adds the one
that helps most, as long as one helps.
"""

# %%
# Only a linear kernel is offered (whose exponential bends already), and the classes are two spirals.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import TwoLayerMKLClassifier

rng = np.random.default_rng(0)
turn, label = 10 * np.sqrt(rng.uniform(0.04, 1, 2160)), rng.integers(0, 2, 2160)
rows = np.c_[
    turn * np.cos(turn + np.pi * label), turn * np.sin(turn + np.pi * label)
] / 6 + 0.08 * rng.standard_normal((2160, 2))
X, y, X_test, y_test = rows[:160], label[:160], rows[160:], label[160:]
alone = TwoLayerMKLClassifier(["linear"], C=1, scale=None).fit(X, y)
free = TwoLayerMKLClassifier(["linear"], C=1, infinite=True, scale=None).fit(X, y)

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.6, 4), layout="constrained")
side = np.linspace(-2, 2, 90)
grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
for ax, (name, model) in zip(
    axes, (("linear kernel", alone), ("and what it added", free)), strict=True
):
    values = model.decision_function(grid).reshape(side.size, side.size)
    ax.contourf(
        side,
        side,
        values,
        levels=[-1e9, 0, 1e9],
        colors=["#D55E00", "#0072B2"],
        alpha=0.2,
    )
    for c, marker, colour in ((0, "o", "#D55E00"), (1, "^", "#0072B2")):
        ax.scatter(*X[y == c].T, s=12, marker=marker, c=colour)
    ax.set(
        title=f"{name}: {model.score(X_test, y_test):.3f} right",
        xlabel="column 0",
        ylabel="column 1",
    )

# %%
# Notice the list of kernels, the added ones last:
for kernel, weight in zip(free.kernels_, free.kernel_weights_, strict=True):
    print(f"{kernel}  weight {weight:.3f}")
