"""
Rules a doctor can check
========================

A black box that is right in 97 cases of 100 is of little use to somebody who must answer for case 98. A list of rules can be read, argued
about, and corrected by hand. The price is a little accuracy; this page shows how much.
"""

# %%
# Tumours, ten mean measurements
# ------------------------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

from gramplane import RuleEnsembleClassifier
from gramplane.plots import RulesDisplay

table = load_breast_cancer(as_frame=True)
X, X_test, y, y_test = train_test_split(
    table.data.iloc[:, :10],
    table.target_names[table.target],
    test_size=0.4,
    random_state=0,
    stratify=table.target,
)
model = RuleEnsembleClassifier(C=10).fit(X, y)
RulesDisplay.from_estimator(model)

# %%
# One patient, rule by rule
# -------------------------
# The ensemble votes: each rule that is true of a patient adds its weight to one side. So each answer can be taken apart.
decisions = model.decision_function(X_test)
doubtful = int(np.argmin(np.abs(decisions)))
holds = model.transform(X_test)[[doubtful]]
holds = np.asarray(holds.toarray() if hasattr(holds, "toarray") else holds).ravel() != 0
parts = np.where(holds, model.coef_[0], 0.0)
shown = np.flatnonzero(holds)[np.argsort(-np.abs(parts[holds]))]
figure, axes = plt.subplots(figsize=(8, 0.42 * len(shown) + 1.4), layout="constrained")
texts = [model.rules_[k]["text"] for k in shown]
axes.barh(texts, parts[shown], color=np.where(parts[shown] > 0, "#0072B2", "#D55E00"))
axes.invert_yaxis()
axes.axvline(0, color="black", linewidth=0.8)
axes.set(
    xlabel=f"speaks for {model.classes_[0]} (left) or {model.classes_[1]} (right)",
    title="The most doubtful patient: rules that hold",
)
print(
    f"sum {parts.sum():+.3f} and intercept {model.intercept_[0]:+.3f} give {decisions[doubtful]:+.3f}; the truth is {y_test[doubtful]}"
)

# %%
# What reading costs
# ------------------
rows = {"rules, C=10": (len(model.rules_), model.score(X_test, y_test))}
for C in (1.0, 3.0, 30.0):
    other = RuleEnsembleClassifier(C=C).fit(X, y)
    rows[f"rules, C={C:g}"] = (len(other.rules_), other.score(X_test, y_test))
tree = DecisionTreeClassifier(max_leaf_nodes=8, random_state=0).fit(X, y)
rows["a tree of 8 leaves"] = (8, tree.score(X_test, y_test))
forest = RandomForestClassifier(100, random_state=0).fit(X, y)
rows["a forest"] = (
    sum(one.get_n_leaves() for one in forest.estimators_),
    forest.score(X_test, y_test),
)
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
marks = zip(rows.items(), ("o", "v", "^", "D", "s", "P"), strict=True)
for (name, (count, score)), marker in marks:
    axes.scatter(
        count,
        score,
        s=70,
        marker=marker,
        color="#0072B2" if name.startswith("rules") else "#E69F00",
        label=name,
    )
axes.legend(loc="upper left", ncols=2, fontsize=9)
axes.set(
    xscale="log",
    xlabel="rules (of trees: leaves) to read",
    ylabel=f"accuracy on {len(y_test)} test rows",
    ylim=(0.85, 1),
    xlim=(1.5, 9000),
)
axes.set_title("What must be read, and what is got for it")

# %%
for name, (count, score) in rows.items():
    print(f"{name}: {count} to read, accuracy {score:.3f}")
gap = model.certificate_
print(
    f"certified: no rule of up to {gap['depth']} conditions could lower the objective by more than {100 * gap['relative_gap']:.1f} %"
)

# %%
# Take it along
# -------------
# As a table for a spreadsheet (``to_csv``) or for another program (``to_json``):
print(str(model.rules_table())[:400])

# %%
# What to try when it is bad
# --------------------------
# * **Too many rules**: a smaller ``C``, or a larger ``a``, the price of each further condition.
# * **Thresholds look odd** (0.05593): fewer candidate cuts, ``n_thresholds=4``, or rounded columns.
# * **Accuracy falls well short of a forest**: more cuts (``n_thresholds=19``), a larger ``C``; then look whether the forest itself agrees
#   with a linear machine: a weighted sum is badly said in rules.
# * **Missing values, names**: leave them in; see the page from a CSV file to a report.
