"""
Classify with a short list of rules
===================================

A rule ensemble is a model that you can read aloud: a short list of weighted
rules that vote for a class. This one classifies three kinds of iris by four
measurements.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_iris

from gramplane import RuleEnsembleClassifier
from gramplane.plots import RulesDisplay

table = load_iris(as_frame=True)
train = np.random.default_rng(0).random(150) < 0.6
X = table.data.rename(columns=lambda name: name.replace(" (cm)", ""))
y = table.target_names[table.target]
model = RuleEnsembleClassifier(C=3).fit(X[train], y[train])
RulesDisplay.from_estimator(model)
for rule in model.rules_:
    print(f"IF {rule['text']} THEN {rule['vote']}")

# %%
# The regions of the classes over two columns, with the others at their mean:
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
length, width = np.meshgrid(
    np.linspace(0.8, 7.2, 160), np.linspace(0, 2.6, 120)
)
grid = pd.DataFrame([X.mean()] * length.size)
grid["petal length"], grid["petal width"] = length.ravel(), width.ravel()
region = np.searchsorted(model.classes_, model.predict(grid)).reshape(
    length.shape
)
axes.contourf(
    length,
    width,
    region,
    levels=[-0.5, 0.5, 1.5, 2.5],
    colors=["#0072B2", "#E69F00", "#009E73"],
    alpha=0.25,
)
for name, marker, colour in zip(
    model.classes_, "o^s", ("#0072B2", "#E69F00", "#009E73"), strict=True
):
    axes.scatter(
        X["petal length"][y == name],
        X["petal width"][y == name],
        marker=marker,
        c=colour,
        s=22,
        label=name,
    )
axes.set(
    xlabel="petal length, cm",
    ylabel="petal width, cm",
    title="Predicted class",
)
axes.legend()

# %%
# All boundaries are straight cuts, because each condition compares one column
# with one number.
score = model.score(X[~train], y[~train])
print(f"{len(model.rules_)} rules; accuracy {score:.3f}", end=" ")
print(f"on {np.sum(~train)} held-out flowers")
