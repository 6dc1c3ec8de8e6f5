"""
Select features for all tasks, for some, or for each
====================================================

Tasks that share features find them with fewer rows when they select together.
:class:`~gramplane.MultiTaskSelector` has three penalties: each task for
itself, all tasks together, or both. Here four clinics have 30 measurements:
two matter in every clinic, one in a single clinic.
"""

# %%
# Each model is the certified batch optimum at the default strength of the
# penalty.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import MultiTaskSelector

rng = np.random.default_rng(0)
task = np.repeat(["north", "east", "south", "west"], 50)
truth = np.zeros((4, 30))
truth[:, [4, 17]] = 0.8 * rng.choice(
    [-1, 1], (4, 2)
) + 0.2 * rng.standard_normal((4, 2))
truth[1, 25] = 1.2
X = rng.standard_normal((200, 30))
code = np.repeat(np.arange(4), 50)
y = (X * truth[code]).sum(axis=1) + rng.standard_normal(200)
penalties = {
    "imtfs": "each task for itself",
    "amtfs": "all tasks together",
    "mtfts": "together, and few within",
}
models = {
    penalty: MultiTaskSelector(penalty=penalty, algorithm="fista").fit(
        X, y, task
    )
    for penalty in penalties
}

# %%
names = models["mtfts"].tasks_
order = [["north", "east", "south", "west"].index(name) for name in names]
figure, rows = plt.subplots(
    4, 1, figsize=(8, 5.2), sharex=True, layout="constrained"
)
shown = [
    ("truth", truth[order]),
    *((f"{p}: {text}", models[p].coef_) for p, text in penalties.items()),
]
for ax, (title, weights) in zip(rows, shown, strict=True):
    picture = ax.imshow(
        weights, cmap="PuOr", vmin=-1.2, vmax=1.2, aspect="auto"
    )
    ax.set_yticks(range(4), names)
    ax.set_title(title, loc="left", fontsize=10)
rows[-1].set_xlabel("measurement")
figure.colorbar(picture, ax=rows, label="weight")

# %%
# Measurements 4 and 17 matter everywhere, 25 in one clinic. Their signs may
# differ between tasks, because tasks share only the size of weights.
X_new = rng.standard_normal((4000, 30))
code = np.repeat(np.arange(4), 1000)
y_new = (X_new * truth[code]).sum(axis=1)
for penalty, text in penalties.items():
    clinic = np.array(["north", "east", "south", "west"])[code]
    score = models[penalty].score(X_new, y_new, clinic)
    n_features = models[penalty].get_support().sum()
    print(f"{text:23s} {n_features:2d} features, R² on new rows {score:.3f}")
