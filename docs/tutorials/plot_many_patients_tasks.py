"""
Learn many small groups together
================================

When groups of patients differ, most models that learn the groups together
predict better than one model for all and than one for each. When the groups
are alike, they lose little. Each group has too few rows for a good model of
its own.

The data are 442 diabetes patients in twelve groups by sex and age. The outcome
is the progression of the disease after one year.
"""

# %%
# Make twelve tasks
# -----------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.preprocessing import scale

from gramplane import (
    LatentTaskMKLRegressor,
    MultiTaskMKLRegressor,
    MultiTaskSelector,
    SharedSubspaceMKLRegressor,
)

table = load_diabetes(as_frame=True, scaled=False)
sixths = table.data["age"].quantile([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6])
age = np.digitize(table.data["age"], sixths)
sex = table.data["sex"].astype(int).astype(str).to_numpy()
task = np.char.add(
    np.char.add("sex ", sex), np.char.add(", age ", (age + 1).astype(str))
)
names = [name for name in table.data.columns if name not in ("age", "sex")]
X, y = scale(table.data[names]), table.target.to_numpy()
sizes = np.unique(task, return_counts=True)[1]
print(f"{len(sizes)} groups of {sizes.min()} to {sizes.max()} patients")

# %%
# Two outcomes
# ------------
# One outcome is measured; the groups turn out to be much alike. The other is
# made from the same measurements: two causes (body mass with blood pressure,
# and s5 against s3) count differently in each group.
rng, causes = np.random.default_rng(0), np.zeros((2, len(names)))
causes[0, [names.index("bmi"), names.index("bp")]] = 1.0, 0.5
causes[1, [names.index("s5"), names.index("s3")]] = 1.0, -0.7
effects = rng.standard_normal((12, 2)) @ causes
made = (X * effects[np.unique(task, return_inverse=True)[1]]).sum(axis=1)
outcomes = {
    "the measured outcome": y,
    "an outcome with different causes in each group": made / made.std()
    + 0.7 * rng.standard_normal(len(y)),
}

# %%
# Six ways to learn from groups
# -----------------------------
# A third of the patients is held out, in three random splits.
kernels = [f"linear[{j}]" for j in range(len(names))]
ways = {
    "features together": lambda: MultiTaskSelector(task_offset="shrunken"),
    "kernels together": lambda: MultiTaskMKLRegressor(
        kernels, C=0.3, loss="squared", scale=None
    ),
    "shared subspace": lambda: SharedSubspaceMKLRegressor(
        ["linear"], C=1.0, loss="squared", scale=None
    ),
    "latent groups": lambda: LatentTaskMKLRegressor(
        ["linear"], C=0.3, mu=0.1, inverted=True, loss="squared", scale=None
    ),
}


def compare(target, seed):
    """Return the R² of each way to learn, on a third of the patients."""
    train = np.random.default_rng(seed).random(len(target)) < 2 / 3
    test, unseen, each = ~train, target[~train], np.zeros(len(target))
    for group in np.unique(task):
        own = task == group
        each[own] = (
            RidgeCV(np.logspace(-1, 3, 20))
            .fit(X[train & own], target[train & own])
            .predict(X[own])
        )
    scores = {
        "one model for all": RidgeCV(np.logspace(-1, 3, 20))
        .fit(X[train], target[train])
        .score(X[test], unseen)
    }
    scores["one model for each"] = (
        1 - np.mean((each[test] - unseen) ** 2) / unseen.var()
    )
    return scores | {
        name: way()
        .fit(X[train], target[train], task[train])
        .score(X[test], unseen, task[test])
        for name, way in ways.items()
    }


figure, panels = plt.subplots(
    1, 2, figsize=(11, 3.4), sharey=True, layout="constrained"
)
for axes, (title, target) in zip(panels, outcomes.items(), strict=True):
    draws = [compare(target, seed) for seed in range(3)]
    for k, name in enumerate(draws[0]):
        values = [draw[name] for draw in draws]
        colour = "#999999" if k < 2 else "#0072B2"
        axes.scatter(values, [k] * 3, s=14, color=colour)
        axes.scatter(
            np.mean(values), k, s=90, marker="|", color=colour, linewidth=3
        )
        axes.text(0.73, k, f"{np.mean(values):.3f}", va="center")
    axes.set(
        xlabel="R² on held-out patients (three splits)",
        title=title,
        xlim=(-0.1, 0.83),
    )
panels[0].set_yticks(range(len(draws[0])), list(draws[0]))
panels[0].invert_yaxis()

# %%
# Grey marks the two extremes: one model for all groups, and one for each.
#
# * At the left, groups are alike: one model for all is hard to beat.
# * At the right, groups differ: one model for all fails, and three of the four
#   ways to learn together are ahead of learning alone.
#
# Which features do the tasks share? The selector finds out by itself:
selector = MultiTaskSelector(task_offset="shrunken").fit(X, y, task)
weights = selector.coef_
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
limit = np.abs(weights).max()
picture = axes.imshow(
    weights, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto"
)
axes.set_xticks(range(len(names)), names)
axes.set_yticks(range(len(selector.tasks_)), selector.tasks_, fontsize=8)
axes.set_title("Weights by group of patients")
figure.colorbar(picture, ax=axes, label="weight")
used = [names[j] for j in selector.get_support(indices=True)]
print("selected:", ", ".join(used))

# %%
# What to try when it is bad
# --------------------------
# * **No better than one model for all**: the tasks are alike, and that is a
#   result. Take the one model.
# * **No better than one model for each**: tasks share nothing, or share it in
#   another form. ``LatentTaskMKLRegressor`` finds groups of tasks.
# * **Predictions hardly vary**: the default ``C`` of methods that sum many
#   kernels is careful; try 1 and 10.
# * **Tasks differ in level more than in slope**: set
#   ``task_offset="shrunken"`` (:class:`~gramplane.MultiTaskSelector`).
# * **A task predicts one class only**: all of its training rows had that
#   class. It needs rows of both.
