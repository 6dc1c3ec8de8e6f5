"""
Find features that no correlation shows
=======================================

Two of 300 features decide the class by their squares: large values of either sign are "far". Their mean is the same in both classes, so a
test of means passes them by. The alignment of a Gaussian kernel does not.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_selection import f_classif

from gramplane import KTASelectionPath

rng = np.random.default_rng(0)
X = rng.standard_normal((200, 300))
y = np.where(X[:, 7] ** 2 + X[:, 250] ** 2 > 2.0, "far", "near")
path = KTASelectionPath(n_machines=1).fit(X, y)
tests, _ = f_classif(X, y)

# %%
figure, (above, below) = plt.subplots(
    2, 1, figsize=(7.5, 4.4), sharex=True, layout="constrained"
)
for ax, values, name in (
    (above, tests, "F of a test of means"),
    (below, path.alignments_, "alignment of its kernel"),
):
    ax.vlines(np.arange(300), 0, values, color="grey", linewidth=0.8)
    ax.vlines(
        [7, 250],
        0,
        values[[7, 250]],
        color="tab:blue",
        linewidth=3,
        label="the two that decide",
    )
    ax.set_ylabel(name)
below.set_xlabel("feature")
above.set_title("The same table, looked at twice")
below.legend(loc="upper center")

# %%
# Notice the two bars below that stand alone. Along the path they are the last to leave:
ranks = np.argsort(np.argsort(path.junctures_)) + 1
print(
    "rank by the point where they leave (1 is last):",
    {j: int(ranks[j]) for j in (7, 250)},
)
print(
    "rank by the test of means:",
    {j: int((tests > tests[j]).sum()) + 1 for j in (7, 250)},
)
