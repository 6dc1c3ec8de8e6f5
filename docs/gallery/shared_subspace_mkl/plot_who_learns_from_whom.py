"""
See which tasks learn from which
================================

The learned couplings :math:`D_j[s, t]` show how much rows of task s count for
task t. They are positive for similar tasks, negative for opposite ones, and
near zero for unrelated ones.
"""

# %%
# Six tasks have 25 rows each: three are similar, two are their opposites, and
# one is unrelated.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import SharedSubspaceMKLClassifier

rng = np.random.default_rng(0)
directions = np.zeros((6, 10))
directions[:3, :3], directions[3:5, :3], directions[5, 3:6] = 1.0, -1.0, 1.0
directions += 0.25 * rng.standard_normal(directions.shape)
task = np.repeat(np.arange(6), 25)
X = rng.standard_normal((150, 10))
y = (X * directions[task]).sum(axis=1) + 0.5 * rng.standard_normal(150) > 0
model = SharedSubspaceMKLClassifier(["linear"], C=10, scale=None).fit(
    X, y, task
)

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
total = model.task_weights_.sum(axis=0)
units = directions / np.linalg.norm(directions, axis=1, keepdims=True)
truth = units @ units.T
for ax, matrix, title in (
    (axes[0], truth, "cosine of the true directions"),
    (axes[1], total, "learned couplings"),
):
    limit = np.abs(matrix).max()
    picture = ax.imshow(matrix, cmap="PuOr", vmin=-limit, vmax=limit)
    ax.set(title=title, xlabel="task", ylabel="task")
    figure.colorbar(picture, ax=ax, shrink=0.9)

# %%
# The couplings recover the blocks. A task with opposite answers helps as much
# as a similar one.
X_new, task_new = (
    rng.standard_normal((6000, 10)),
    np.repeat(np.arange(6), 1000),
)
y_new = (X_new * directions[task_new]).sum(axis=1) > 0
alone = [
    SharedSubspaceMKLClassifier(["linear"], C=10, scale=None).fit(
        X[task == t], y[task == t], task[task == t]
    )
    for t in range(6)
]
single = np.mean(
    [
        alone[t].score(
            X_new[task_new == t], y_new[task_new == t], task_new[task_new == t]
        )
        for t in range(6)
    ]
)
print("accuracy on new rows:")
print(f"  tasks together  {model.score(X_new, y_new, task_new):.3f}")
print(f"  each task alone {single:.3f}")
