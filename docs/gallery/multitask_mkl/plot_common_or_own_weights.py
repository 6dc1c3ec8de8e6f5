"""
The same kernels, or the same weights: what p does
==================================================

With ``p=2`` all tasks share kernel weights: what is strong in one task is strong in all. With a larger ``p`` they share the list of
kernels only, and a kernel may play a large part in one task and a small one in another.
"""

# %%
# Six tasks of 20 rows on the same two of six columns: for the first three the left one is strong, for the others the right one.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import MultiTaskMKLRegressor

rng = np.random.default_rng(0)
truth = np.zeros((6, 6))
truth[:3, :2], truth[3:, :2] = (3.0, 0.4), (0.4, 3.0)
task = np.repeat(np.arange(6), 20)
X = rng.standard_normal((120, 6))
y = (X * truth[task]).sum(axis=1) + rng.standard_normal(120)
kernels = [f"linear[{j}]" for j in range(6)]
models = {
    p: MultiTaskMKLRegressor(kernels, p=p, loss="squared", scale=None).fit(X, y, task)
    for p in (2.0, 4.0, 8.0)
}

# %%
# Kernels are linear, so the slope of each task can be read from predictions at 0 and at 1.
figure, axes = plt.subplots(1, 4, figsize=(11, 3.2), sharey=True, layout="constrained")
at = np.concatenate([np.zeros((1, 6)), np.eye(6)])
slopes = {
    p: np.array([(v := m.predict(at, np.full(7, t)))[1:] - v[0] for t in range(6)])
    for p, m in models.items()
}
for ax, (name, values) in zip(
    axes,
    [("truth", truth), *((f"p = {p:g}", s) for p, s in slopes.items())],
    strict=True,
):
    picture = ax.imshow(values.T, cmap="PuOr", vmin=-3, vmax=3)
    ax.set(title=name, xlabel="task", xticks=range(6))
axes[0].set(ylabel="column", yticks=range(6))
figure.colorbar(picture, ax=axes, label="slope")

# %%
# Notice that all of them leave the lower four columns next to zero, which is what tasks agree on, and that p changes little here: it is
# the list of kernels that is worth most. ``task_kernel_weights_`` has the weights:
# they are larger where a task's part is small, for they take back the penalty there.
for p, values in slopes.items():
    print(
        f"p={p:g}: mean squared error of the slopes {np.mean((values - truth) ** 2):.4f}"
    )
