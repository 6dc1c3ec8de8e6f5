"""
Use unlabelled rows to place the boundary
=========================================

Unlabelled rows show where the gap between the classes is, and the boundary
moves there. Here six rows have labels and 200 have none.
"""

# %%
# Two moons, with three labelled points each:
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
figure, axes = plt.subplots(
    1, 2, figsize=(9, 3.6), sharey=True, layout="constrained"
)
a, b = np.meshgrid(np.linspace(-1.6, 2.6, 90), np.linspace(-1.1, 1.6, 70))
for ax, (name, svm) in zip(
    axes,
    (("6 labelled rows", plain), ("and 200 unlabelled", model)),
    strict=True,
):
    values = svm.decision_function(np.c_[a.ravel(), b.ravel()]).reshape(
        a.shape
    )
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
    score = svm.score(X[others], y[others])
    ax.set_title(f"{name}: accuracy {score:.3f}")
    print(f"{name}: accuracy {score:.3f} on the unlabelled rows")
axes[0].legend(loc="lower left")

# %%
# ``all_relevant=True`` says that every unlabelled row belongs to one of the
# two classes. ``balance="labels"`` says that the classes are as frequent as
# among the labelled rows. Without it, all unlabelled rows could fall on one
# side.
