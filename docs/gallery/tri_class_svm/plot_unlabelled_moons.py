"""
Six labels and two hundred rows without
=======================================

Labels are dear, rows are cheap. Unlabelled rows show where there is no data at all, and a boundary should rather run there.
"""

# %%
# Two moons with three labelled points each.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.svm import SVC

from gramplane import TriClassSVC

X, y = make_moons(206, noise=0.12, random_state=9)
labelled = np.concatenate([np.flatnonzero(y == c)[:3] for c in (0, 1)])
others = np.setdiff1d(np.arange(len(y)), labelled)
plain = SVC(gamma=2.0, C=10).fit(X[labelled], y[labelled])
model = TriClassSVC(
    gamma=2.0,
    C=10,
    C_unlabelled=0.3,
    balance="labels",
    all_relevant=True,
    validation=0,
    scale=None,
).fit(X[labelled], y[labelled], X[others])

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
a, b = np.meshgrid(np.linspace(-1.6, 2.6, 90), np.linspace(-1.1, 1.6, 70))
for ax, (name, machine) in zip(
    axes, (("labelled rows alone", plain), ("with unlabelled rows", model)), strict=True
):
    values = machine.decision_function(np.c_[a.ravel(), b.ravel()]).reshape(a.shape)
    ax.contourf(
        a,
        b,
        values > 0,
        levels=[-0.5, 0.5, 1.5],
        colors=["#D55E00", "#0072B2"],
        alpha=0.2,
    )
    ax.contour(a, b, values, levels=[0], colors="black")
    ax.scatter(*X[others].T, s=8, c="grey", label="unlabelled")
    for c, marker, colour in ((0, "o", "#D55E00"), (1, "^", "#0072B2")):
        ax.scatter(
            *X[labelled[y[labelled] == c]].T,
            s=70,
            marker=marker,
            c=colour,
            edgecolor="black",
            label=f"class {c}",
        )
    ax.set_title(f"{name}: {machine.score(X[others], y[others]):.3f} right")
axes[0].legend(loc="lower left")

# %%
# Notice where the boundary passes: through the gap, once the grey rows are seen. ``all_relevant=True`` says that all of them belong to one
# of the two classes, ``balance="labels"`` that the classes are as frequent as among the labelled rows: without it the machine may put all
# grey rows on one side, which is a large gap, too.
