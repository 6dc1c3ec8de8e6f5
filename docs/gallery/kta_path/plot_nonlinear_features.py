"""
Find features that no correlation shows
=======================================

The alignment of a Gaussian kernel finds features whose mean is the same in
both classes. Two of 300 features decide the class by their squares, so a test
of means does not find them.
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
    (above, tests, "F, test of means"),
    (below, path.alignments_, "kernel alignment"),
):
    ax.vlines(np.arange(300), 0, values, color="grey", linewidth=0.8)
    ax.vlines(
        [7, 250],
        0,
        values[[7, 250]],
        color="tab:blue",
        linewidth=3,
        label="the two features that decide",
    )
    ax.set_ylabel(name)
below.set_xlabel("feature")
above.set_title("Two scores of the same 300 features")
below.legend(loc="upper center")

# %%
# The two features stand out in the lower panel only. They are also among the
# last three to leave the path:
ranks = np.argsort(np.argsort(path.junctures_)) + 1
print("feature  rank on the path  rank by the test of means")
for j in (7, 250):
    print(f"{j:7d}  {ranks[j]:16d}  {(tests > tests[j]).sum() + 1:25d}")
