"""
See groups enter the model as the penalty falls
===============================================

The group lasso selects all columns of a measurement together, or none. At
``lam_max_`` nothing is selected; below it, one group after another enters.
"""

# %%
# Ten measurements of diabetes patients, each as a group of three columns:
# value, square and cube.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import scale

from gramplane import GroupLassoRegressor

table = load_diabetes(as_frame=True)
X = scale(np.concatenate([scale(table.data) ** k for k in (1, 2, 3)], axis=1))
groups = np.tile(np.arange(10), 3)
largest = (
    GroupLassoRegressor(lam=10, groups=groups, algorithm="fista", scale=None)
    .fit(X, table.target)
    .lam_max_
)
shares = np.geomspace(0.9, 0.03, 12)
norms = []
for share in shares:
    model = GroupLassoRegressor(
        lam=share * largest, groups=groups, algorithm="fista", scale=None
    ).fit(X, table.target)
    norms.append(
        [np.linalg.norm(model.coef_[0, groups == g]) for g in range(10)]
    )
norms = np.array(norms)

# %%
figure, axes = plt.subplots(figsize=(7, 3.8), layout="constrained")
entered = np.argsort(-(norms > 0).sum(axis=0))
styles = [
    (colour, line)
    for line in ("-", "--")
    for colour in ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
]
for g, (colour, line) in zip(entered, styles, strict=True):
    axes.semilogx(
        shares,
        norms[:, g],
        color=colour,
        linestyle=line,
        label=table.data.columns[g],
    )
axes.invert_xaxis()
axes.set(
    xlabel="lam, as a share of lam_max_",
    ylabel="norm of the weights of a group",
    title="Groups enter one after another",
)
axes.legend(ncols=2, title="order of entry")

# %%
# Body mass and the blood value s5 enter first, then blood pressure. Every
# point is certified:
print(f"last model: objective {model.objective_:.1f},", end=" ")
print(f"at most {model.dual_gap_:.1g} above the optimum")
