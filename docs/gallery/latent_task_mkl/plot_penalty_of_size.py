"""
Set the size of task groups
===========================

``a`` sets how many groups of tasks the model keeps: a group of :math:`k` tasks
costs :math:`a^k`. A small ``a`` keeps many large groups; a large one keeps
few, down to single tasks.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from gramplane import LatentTaskMKLRegressor

rng = np.random.default_rng(1)
task = np.repeat(np.arange(6), 20)
X = rng.standard_normal((120, 8))
y = np.where(
    task < 3, X[:, :4].sum(axis=1), X[:, 4:].sum(axis=1)
) + 0.5 * rng.standard_normal(120)
prices = (1.1, 1.2, 1.35, 1.5, 2.0)
kernels = ["linear[0:4]", "linear[4:8]"]
models = [
    LatentTaskMKLRegressor(
        kernels, a=a, mu=0.1, C=1.0, loss="squared", scale=None
    ).fit(X, y, task)
    for a in prices
]

# %%
X_new, task_new = rng.standard_normal((6000, 8)), np.repeat(np.arange(6), 1000)
y_new = np.where(
    task_new < 3, X_new[:, :4].sum(axis=1), X_new[:, 4:].sum(axis=1)
)
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.4), layout="constrained"
)
sizes = np.array(
    [
        [sum(len(g.tasks) == size for g in m.groups_) for size in range(1, 7)]
        for m in models
    ]
)
bottom = np.zeros(len(prices))
for size in range(6):
    left.bar(
        range(len(prices)),
        sizes[:, size],
        bottom=bottom,
        color=plt.get_cmap("viridis")(size / 5),
        label=f"{size + 1}",
    )
    bottom += sizes[:, size]
left.set_xticks(range(len(prices)), [str(a) for a in prices])
left.set(xlabel="a", ylabel="groups with weight", title="Groups by size")
left.legend(title="tasks", fontsize=8)
right.plot(
    prices,
    [m.score(X_new, y_new, task_new) for m in models],
    "o-",
    color="tab:blue",
)
right.set(
    xlabel="a", ylabel="R² on new rows", title="Prediction", ylim=(0.8, 1)
)

# %%
# At the left, the groups are too many to read. At the right, tasks stand alone
# and learn nothing from each other. In between, pairs and triples show which
# tasks belong together. Compare the weights of groups of one size only,
# because the penalty favours small groups.
for a, model in zip(prices, models, strict=True):
    gap = model.dual_gap_ / model.objective_
    print(
        f"a={a:<4}  {len(model.groups_):2d} groups, optimal within {gap:.1%}"
    )
