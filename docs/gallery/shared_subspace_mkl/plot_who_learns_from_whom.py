"""
See which tasks learn from which
================================

Tasks can be alike, opposed or strangers. The couplings :math:`D_j[s, t]` say how much a row of task s counts for task t: above zero for
allies, below for opposites, near zero for strangers. They are learnt with the machines.
"""

# %%
# Six tasks with 25 rows each: three of one kind, two of the opposite, one of its own.
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
model = SharedSubspaceMKLClassifier(["linear"], C=10, scale=None).fit(X, y, task)

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
total = model.task_weights_.sum(axis=0)
truth = directions @ directions.T / np.outer(*2 * [np.linalg.norm(directions, axis=1)])
for ax, matrix, title in (
    (axes[0], truth, "cosine of the true directions"),
    (axes[1], total, "couplings learnt"),
):
    limit = np.abs(matrix).max()
    picture = ax.imshow(matrix, cmap="PuOr", vmin=-limit, vmax=limit)
    ax.set(title=title, xlabel="task", ylabel="task")
    figure.colorbar(picture, ax=ax, shrink=0.9)

# %%
# Notice that the blocks come back, opposites included: a task with the contrary answer is as good a teacher as an ally.
X_new, task_new = rng.standard_normal((6000, 10)), np.repeat(np.arange(6), 1000)
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
print(
    f"accuracy on new rows: together {model.score(X_new, y_new, task_new):.3f}, each task alone {single:.3f}"
)
