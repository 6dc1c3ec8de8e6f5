"""
Rules a doctor can check
========================

On this table of patients, two rules predict as well as a forest of 300 trees,
and a doctor can read, discuss and correct them. The table has missing values
and categories, which rules use as they are.
"""

# %%
# Read the table
# --------------
# ``gramplane.datasets.patients`` makes 600 patients to learn from and 200 new
# ones. The true rules are known, so that you can compare what is found.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from gramplane import RuleEnsembleClassifier
from gramplane.datasets import patients
from gramplane.plots import RulesDisplay

made = patients()
with tempfile.TemporaryDirectory() as folder:
    files = Path(folder, "patients.csv"), Path(folder, "new.csv")
    made.to_csv(*files)
    train, test = (pd.read_csv(file, dtype={"zip": str}) for file in files)
print(train.head(4).to_string(index=False))

# %%
# The patient's number and the day of admission are not features. A zip code
# is a category, although it looks like a number.
columns = ["age", "pressure", "smoker", "ward", "zip"]
X, X_test = (
    part[columns].astype({"zip": "category"}) for part in (train, test)
)
y, y_test = train["outcome"], test["outcome"]

# %%
# Find rules
# ----------
# All parameters are at their defaults.
model = RuleEnsembleClassifier().fit(X, y)
for rule in model.rules_:
    print(
        f"IF {rule['text']} THEN {rule['vote']} ({rule['support']} patients)"
    )
print(f"planted: ill IF {made.rule}")
RulesDisplay.from_estimator(model)

# %%
# The certificate says how good the search was:
gap = model.certificate_
print(f"at most {gap['relative_gap']:.0%} above the optimum", end=" ")
print(f"over all rules of up to {gap['depth']} conditions")

# %%
# Compare with other models
# -------------------------
# The others need complete numbers: missing values are filled in, and each
# category becomes a column.
numbers, names = ["age", "pressure"], ["smoker", "ward", "zip"]
others = {
    "logistic regression": LogisticRegression(max_iter=1000),
    "tree of 8 leaves": DecisionTreeClassifier(
        max_leaf_nodes=8, random_state=0
    ),
    "forest of 300 trees": RandomForestClassifier(300, random_state=0),
}
scores = {
    "most frequent class": np.mean(y_test == y.mode()[0]),
    "2 rules": model.score(X_test, y_test),
}
for name, other in others.items():
    columns_ready = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore"), names),
    )
    fitted = make_pipeline(columns_ready, other).fit(X, y)
    scores[name] = fitted.score(X_test, y_test)
figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
colours = ["#999999", "#0072B2", "#E69F00", "#E69F00", "#E69F00"]
bars = axes.barh(list(scores), list(scores.values()), color=colours)
axes.bar_label(bars, [f"{score:.1%}" for score in scores.values()], padding=3)
axes.invert_yaxis()
axes.set(xlim=(0, 1.1), xlabel=f"accuracy on {len(y_test)} new patients")

# %%
# A weighted sum of columns cannot say "over 60 *and* smokes". The trees can,
# but a forest is too large to read.
#
# Explain one prediction
# ----------------------
# Each rule that is true of a patient adds its weight to one side. So you can
# take every prediction apart:
patient = int(np.flatnonzero(model.predict(X_test) == "ill")[0])
print(X_test.iloc[patient].to_string())
holds = model.transform(X_test.iloc[[patient]]).ravel() != 0
print(f"starting value {model.intercept_[0]:+.2f}", end=" ")
print(f"(negative: {model.classes_[0]}, positive: {model.classes_[1]})")
for k in np.flatnonzero(holds):
    print(f"{model.rules_[k]['text']}: {model.coef_[0, k]:+.2f}")
decision = model.decision_function(X_test.iloc[[patient]])[0]
print(f"sum {decision:+.2f}: {model.predict(X_test.iloc[[patient]])[0]}")

# %%
# From the command line
# ---------------------
# The same model from the file, with a report:
#
# .. code-block:: sh
#
#    gramplane ingest patients.csv stores/train --target outcome \
#        --id-column patient --drop admitted \
#        --categorical zip --missing keep
#    gramplane fit rule-ensemble --data stores/train --run runs/rules
#    gramplane score runs/rules new.csv
#    gramplane report runs/rules
#
# What to try when it is bad
# --------------------------
# * **Too many rules**: use a smaller ``C``, or a larger ``a``, the price of
#   each further condition.
# * **A rule is missing**: a larger ``C`` keeps more and longer rules.
# * **Thresholds have too many digits**: allow fewer of them
#   (``n_thresholds=4``), or round the columns.
# * **A forest predicts much better**: use more thresholds
#   (``n_thresholds=19``) and a larger ``C``. If a linear model is as good as
#   the forest, use the linear model: rules describe a weighted sum badly.
