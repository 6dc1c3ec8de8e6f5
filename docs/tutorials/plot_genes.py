"""
A few of thousands of columns, and whether to trust them
========================================================

A gene table has few rows and thousands of columns, nearly all of which have nothing to do with the disease. Two questions matter: which few
columns predict, and would another sample of patients have chosen the same?

Real tables do not tell which columns are noise. So this page makes one that does: the thirty measurements of real tumours, and 3,000
*probes*, each a real column whose values were shuffled among the patients. Whoever selects a probe is caught.
"""

# %%
# The table: 569 tumours, of which 150 are for training
# -----------------------------------------------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from gramplane import FGMClassifier, FGMClassifierCV

table = load_breast_cancer(as_frame=True)
rng = np.random.default_rng(0)
probes = np.column_stack(
    [rng.permutation(table.data.to_numpy()[:, k % 30]) for k in range(3000)]
)
names = np.array([*table.data.columns, *(f"probe {k}" for k in range(3000))])
X, X_test, y, y_test = train_test_split(
    np.column_stack([table.data, probes]),
    table.target_names[table.target],
    train_size=150,
    random_state=0,
    stratify=table.target,
)
print(f"{X.shape[0]} rows, {X.shape[1]} columns, of which 3,000 say nothing")

# %%
# A first fit
# -----------
# Two columns join per round, at most five rounds; everything else is left to the defaults. Columns are standardised inside.
model = FGMClassifier(B=2, max_rounds=5).fit(X, y)
print("selected:", ", ".join(names[model.selected_]))
print(
    f"test accuracy {model.score(X_test, y_test):.3f}; always the commonest answer: {np.mean(y_test == 'benign'):.3f}"
)

# %%
# How many rounds, and how many columns a round, is a question for rows held out. One search answers it for all rounds at once, and takes
# the simplest model within a standard error of the best.
search = FGMClassifierCV(
    Bs=[1, 2, 4], Cs=[model.C_], max_rounds=6, cv=5, one_standard_error=True
).fit(X, y)
print(
    f"B={search.B_}, {search.max_rounds_} rounds: {len(search.selected_)} columns, {np.sum(search.selected_ >= 30)} of them probes, test accuracy {search.score(X_test, y_test):.3f}"
)
lasso = LogisticRegression(l1_ratio=1.0, C=0.1, solver="liblinear").fit(
    (X - X.mean(0)) / X.std(0), y
)
chosen = np.flatnonzero(lasso.coef_[0])
print(
    f"beside it an l1 penalty (C=0.1): {len(chosen)} columns, {np.sum(chosen >= 30)} of them probes"
)

# %%
# Would other patients have chosen the same?
# ------------------------------------------
# ``selection_stability`` fits the machine again to bootstrap resamples of the rows, and tells how often each column is selected. All
# resamples share the passes over the data.
share = model.selection_stability(50)

# %%
order = np.argsort(-share)[:40]
figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
is_probe = order >= 30
axes.bar(
    np.flatnonzero(~is_probe),
    share[order][~is_probe],
    color="#0072B2",
    label="measurement",
)
axes.bar(
    np.flatnonzero(is_probe),
    share[order][is_probe],
    color="#E69F00",
    hatch="//",
    label="probe: known noise",
)
axes.axhline(share[30:].max(), color="black", linestyle=":", linewidth=1)
axes.text(39.5, share[30:].max() + 0.01, "the luckiest of 3,000 probes", ha="right")
axes.set_xticks(range(8), names[order[:8]], rotation=60, ha="right")
axes.set(ylabel="share of 50 resamples", title="What is selected again and again")
axes.legend()

# %%
# The dotted line is the whole story: what stands above it is chosen more often than the luckiest of 3,000 columns that mean nothing.
above = [
    name
    for name, value in zip(names[order], share[order], strict=True)
    if value > share[30:].max()
]
print(f"{len(above)} columns stand above the probes: {', '.join(above)}")

# %%
# What to try when it is bad
# --------------------------
# * **Probes above measurements**: there are too few rows for so many columns. Fewer columns a round (``B``), fewer rounds, or more rows.
# * **Every resample chooses something else**: columns that say the same share the votes. Look at groups of them (``groups=``).
# * **Accuracy falls short of an RBF machine's**: the answer is no weighted sum. Try products (``feature_map="poly2"``), or kernels of
#   single columns (:class:`~gramplane.KTASelectionPath`, :class:`~gramplane.MKLClassifier`).
# * **Age or batch explain everything**: give them as ``covariates=``, and the rest is selected beside them.
