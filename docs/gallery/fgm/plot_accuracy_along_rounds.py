"""
See how many features are enough
================================

The Feature Generating Machine adds a handful of features per round, those that would help the current model most. So one fit gives a
whole path: a model with 2 features, one with 4, and so on. Where the path turns flat, further features are not worth their cost.
"""

# %%
# Thirty measurements of cell nuclei; two join per round. Columns are scaled inside the fit.
import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import cross_val_score, train_test_split

from gramplane import FGMClassifier
from gramplane.plots import PathDisplay

table = load_breast_cancer(as_frame=True)
X, X_test, y, y_test = train_test_split(
    table.data, table.target, test_size=0.3, random_state=0, stratify=table.target
)
model = FGMClassifier(B=2, max_rounds=6).fit(X, y)
PathDisplay.from_estimator(model)

# %%
# A line is the weight of a column: two leave zero in every round. Whether fewer rounds are enough is a question for rows that were not
# seen: five folds of the training part, for every number of rounds.
rounds = range(1, 7)
scores = [cross_val_score(FGMClassifier(B=2, max_rounds=r), X, y, cv=5) for r in rounds]
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.errorbar(
    [2 * r for r in rounds],
    [s.mean() for s in scores],
    [s.std() / 5**0.5 for s in scores],
    fmt="o-",
    capsize=3,
)
axes.set(
    xlabel="features at most",
    ylabel="accuracy, mean of 5 folds",
    title="Rows held out (bars: standard error)",
)

# %%
# Notice that the curve is flat early: most of the thirty columns say the same thing. The names of those that were taken:
for name, weight in zip(
    X.columns[model.selected_], model.coef_[0, model.selected_], strict=True
):
    print(f"{name:25s} {weight:+.3f}")
print(
    f"accuracy on the test part with {len(model.selected_)} of {X.shape[1]} features: {model.score(X_test, y_test):.3f}"
)
