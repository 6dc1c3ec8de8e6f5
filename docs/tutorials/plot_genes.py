"""
Select genes that another study would select again
==================================================

:class:`~gramplane.FGMClassifierCV` at its defaults selects ten of 3,030
columns and no noise, where a cross-validated :math:`\\ell_1` penalty selects
mostly noise. A gene table has few rows and thousands of columns, most of
which have nothing to do with the disease.

In a real table you cannot know which columns are noise. So this page adds
3,000 *probes* to the thirty measurements of real tumours: real columns whose
values are shuffled among the patients. A selected probe is a mistake.
"""

# %%
# Make the table
# --------------
# 150 of the 569 tumours are for training, the others are held out.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gramplane import FGMClassifierCV

table = load_breast_cancer(as_frame=True)
rng = np.random.default_rng(0)
values = table.data.to_numpy()
probes = [rng.permutation(values[:, k % 30]) for k in range(3000)]
names = np.array([*table.data.columns, *(f"probe {k}" for k in range(3000))])
X, X_test, y, y_test = train_test_split(
    np.column_stack([values, *probes]),
    table.target_names[table.target],
    train_size=150,
    random_state=0,
    stratify=table.target,
)
print(f"{X.shape[0]} rows, {X.shape[1]:,} columns, of which 3,000 are probes")

# %%
# Select columns
# --------------
# The search chooses the number of columns and ``C`` by cross-validation. It
# sees the training rows only, and puts all columns on one scale.
search = FGMClassifierCV().fit(X, y)
print(*names[search.selected_], sep="\n")

# %%
# Compare with an :math:`\ell_1` penalty, whose strength is cross-validated,
# too:
lasso = LogisticRegressionCV(
    l1_ratios=[1.0],
    solver="liblinear",
    scoring="accuracy",
    use_legacy_attributes=False,
    random_state=0,
)
lasso = make_pipeline(StandardScaler(), lasso).fit(X, y)
rows = {
    "FGM": (search.selected_, search.score(X_test, y_test)),
    "l1 penalty": (
        np.flatnonzero(lasso[-1].coef_[0]),
        lasso.score(X_test, y_test),
    ),
}
print("method      columns  probes  test accuracy")
for name, (chosen, score) in rows.items():
    n_probes = np.sum(chosen >= 30)
    print(f"{name:10s}  {len(chosen):7d}  {n_probes:6d}  {score:13.3f}")
majority = np.mean(y_test == "benign")
print(f"accuracy of the most frequent class: {majority:.3f}")

# %%
# Would other patients give the same columns?
# -------------------------------------------
# ``selection_stability`` fits the model again to 50 bootstrap samples of the
# rows and counts how often each column is selected. All fits share the passes
# over the data.
share = search.selection_stability(50)
print(f"most often selected probe: in {share[30:].max():.0%} of samples")

# %%
order = np.argsort(-share, kind="stable")[: np.sum(share > 0)]
figure, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
is_chosen = np.isin(order, search.selected_)
for chosen, colour, label in (
    (True, "#0072B2", "selected by the search"),
    (False, "#999999", "not selected"),
):
    rows = np.flatnonzero(is_chosen == chosen)
    axes.barh(rows, share[order[rows]], color=colour, label=label)
axes.set_yticks(range(len(order)), names[order])
axes.invert_yaxis()
axes.set(
    xlabel="share of 50 samples in which the column is selected",
    title="All columns that any sample selects",
)
axes.legend(loc="lower right")

# %%
# The ten columns of the search are selected again in most samples. Where a
# probe reaches as far as a measurement, do not trust the measurement.

# %%
# What to try when it is bad
# --------------------------
# * **Probes above measurements**: there are too few rows for so many columns.
#   Select fewer columns (``Bs=[2, 5]``), or find more rows.
# * **Every sample selects other columns**: correlated columns replace each
#   other. Select groups of them (``groups=``).
# * **An RBF SVM predicts much better**: the answer is no weighted sum. Try
#   products (``feature_map="poly2"``), or kernels of single columns
#   (:class:`~gramplane.KTASelectionPath`, :class:`~gramplane.MKLClassifier`).
# * **Age or batch explain everything**: pass them as ``covariates=``, and the
#   search selects columns in addition to them.
