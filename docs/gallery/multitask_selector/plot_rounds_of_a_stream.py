"""
Select features of many tasks from a stream
===========================================

A stream gives one row per task and round, and the selector keeps a short list
of features for all tasks without storing a row. When the world changes, the
list follows slowly.
"""

# %%
# Six tasks have 100 features, of which three matter. After half of the rounds
# feature 40 stops mattering and 70 starts.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import MultiTaskSelector

rng = np.random.default_rng(1)
n_rounds, n_tasks = 1200, 6
X = rng.standard_normal((n_rounds, n_tasks, 100))
slopes = 1 + 0.3 * rng.standard_normal((n_tasks, 3))
model, sizes = MultiTaskSelector(penalty="amtfs", lam=0.3, gamma=10.0), []
for first in range(0, n_rounds, 50):
    rows = X[first : first + 50]
    third = 40 if first < n_rounds // 2 else 70
    y = np.einsum(
        "rtk,tk->rt", rows[:, :, [5, 20, third]], slopes
    ) + rng.standard_normal(rows.shape[:2])
    model.partial_fit(
        rows.reshape(-1, 100),
        y.ravel(),
        np.tile(np.arange(n_tasks), len(rows)),
    )
    sizes.append(np.linalg.norm(model.coef_, axis=0))

# %%
figure, axes = plt.subplots(figsize=(8.5, 3.6), layout="constrained")
ends = 50 * np.arange(1, len(sizes) + 1)
for feature, colour, line in (
    (5, "#0072B2", "-"),
    (20, "#D55E00", "--"),
    (40, "#009E73", "-."),
    (70, "#CC79A7", "-"),
):
    axes.plot(
        ends,
        np.array(sizes)[:, feature],
        color=colour,
        linestyle=line,
        label=f"feature {feature}",
        linewidth=2,
    )
others = np.delete(np.array(sizes), [5, 20, 40, 70], axis=1).max(axis=1)
axes.plot(
    ends, others, color="grey", linestyle=":", label="largest of the 96 others"
)
axes.axvline(n_rounds // 2, color="grey", linewidth=0.8)
axes.text(n_rounds // 2 - 10, 0.5, "feature 70\nreplaces 40", ha="right")
axes.set(
    xlabel="round (one row per task)",
    ylabel="norm of a feature's weights",
    title="Weights over the rounds",
)
axes.legend(loc="upper left", bbox_to_anchor=(1, 1))

# %%
# Feature 40 fades slowly, because dual averaging gives all rounds the same
# weight. After a lasting change, start a new model. ``gamma`` sets the step
# length: choose it near the squared length of a row; with a much smaller one a
# squared loss diverges.
selected = model.get_support(indices=True).tolist()
print("features selected at the end:", selected)
