"""
Rules on a table with names and holes
=====================================

Wards, smokers and values that were never taken: rules read columns of names as they are, and a comparison with a missing value is false,
so nothing need be filled in.
"""

# %%
# 600 patients with a rule planted in them, and a few outcomes that do not follow it.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from gramplane import RuleEnsembleClassifier
from gramplane.datasets import patients

made = patients()
train, test = pd.DataFrame(made.train), pd.DataFrame(made.test)
columns = ["age", "pressure", "smoker", "ward"]
model = RuleEnsembleClassifier(C=3).fit(train[columns], train["outcome"])
print("planted:", made.rule)
for rule in model.rules_:
    print(
        f"found: IF {rule['text']} THEN {rule['vote']} (weight {rule['weight']:.2f}, {rule['support']} rows)"
    )

# %%
# The missing share of each column, and the accuracy for patients with and without holes:
holes = test[columns].isna().any(axis=1).to_numpy()
right = model.predict(test[columns]) == test["outcome"]
figure, (left, other) = plt.subplots(1, 2, figsize=(8.5, 3.2), layout="constrained")
left.bar(columns, train[columns].isna().mean(), color="tab:orange")
left.set(ylabel="share missing", title="Holes in the table")
shares, errors = zip(
    *(
        (np.mean(r), np.sqrt(np.mean(r) * (1 - np.mean(r)) / r.size))
        for r in (right[~holes], right[holes])
    ),
    strict=True,
)
other.errorbar(
    [
        f"{np.sum(~holes)} patients\nwithout holes",
        f"{np.sum(holes)} patients\nwith holes",
    ],
    shares,
    errors,
    fmt="o",
    capsize=4,
)
other.set(
    ylabel="accuracy (bar: standard error)",
    title="New patients",
    ylim=(0.6, 1.02),
    xlim=(-0.5, 1.5),
)

# %%
# Notice the texts: names stand as names, and numbers have cuts one can say aloud.
print(
    f"accuracy {right.mean():.3f}; always the commonest outcome: {(test['outcome'] == train['outcome'].mode()[0]).mean():.3f}"
)
