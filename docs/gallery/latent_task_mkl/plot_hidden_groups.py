"""
Find out which tasks belong together
====================================

Six shops, of which three sell by one law and three by another; nobody knows who belongs to whom. The method looks at all 63 groups that
six tasks can form, gives kernels to those that are worth it, and certifies that no group was overlooked.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from gramplane import LatentTaskMKLRegressor

rng = np.random.default_rng(0)
task = np.repeat(list("ABCDEF"), 20)
X = rng.standard_normal((120, 8))
first = np.isin(task, ["A", "C", "E"])
y = np.where(
    first, X[:, :4].sum(axis=1), X[:, 4:].sum(axis=1)
) + 0.5 * rng.standard_normal(120)
model = LatentTaskMKLRegressor(
    ["linear[0:4]", "linear[4:8]"], a=1.2, mu=0.1, C=1.0, loss="squared", scale=None
).fit(X, y, task)

# %%
# Kernel weights between different tasks, one picture for either half of the columns:
figure, axes = plt.subplots(1, 2, figsize=(7.5, 3.4), layout="constrained")
between = np.where(np.eye(6, dtype=bool), np.nan, model.task_kernel_weights_)
for j, ax in enumerate(axes):
    picture = ax.imshow(between[j], cmap="viridis", vmin=0, vmax=np.nanmax(between))
    ax.set_title(f"columns {4 * j} to {4 * j + 3}")
    ax.set_xticks(range(6), model.tasks_)
    ax.set_yticks(range(6), model.tasks_)
figure.colorbar(picture, ax=axes, label="weight")

# %%
# Notice the chessboards: A, C, E share the left columns, the others the right ones. (White: a task with itself, which always weighs most.)
# The heaviest groups of more than one task:
for group in [g for g in model.groups_ if len(g.tasks) > 1][:4]:
    print(", ".join(group.tasks), f"weight {group.weight:.4f}")
print(
    f"no group was overlooked that could lower the objective by more than {100 * model.certificate_.relative_gap:.1f} %"
)
