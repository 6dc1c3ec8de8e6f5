"""
How many rules are worth reading?
=================================

More rules fit the training rows better, but soon do not predict better. ``C``
sets the price of an error: a small ``C`` keeps a few short rules, a large one
many long rules that follow single rows.
"""

# %%
import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from gramplane import RuleEnsembleClassifier

table = load_breast_cancer(as_frame=True)
X, X_test, y, y_test = train_test_split(
    table.data.iloc[:, :10],
    table.target,
    test_size=0.5,
    random_state=0,
    stratify=table.target,
)
Cs = (0.3, 1, 3, 10, 30, 100)
models = [
    RuleEnsembleClassifier(C=C, n_thresholds=5, tol=0.02).fit(X, y) for C in Cs
]

# %%
figure, (above, below) = plt.subplots(
    2, 1, figsize=(6.5, 4.6), sharex=True, layout="constrained"
)
above.semilogx(
    Cs,
    [m.score(X, y) for m in models],
    "s--",
    color="tab:orange",
    label="training rows",
)
above.semilogx(
    Cs,
    [m.score(X_test, y_test) for m in models],
    "o-",
    color="tab:blue",
    label=f"{len(y_test)} test rows",
)
above.set(ylabel="accuracy", title="Accuracy and length of the list")
above.legend()
below.semilogx(Cs, [len(m.rules_) for m in models], "o-", color="black")
below.set(xlabel="C", ylabel="rules")

# %%
# Choose ``C`` where the test curve turns flat. The shortest list in full:
for rule in min(models, key=lambda model: len(model.rules_)).rules_:
    kind = table.target_names[int(rule["vote"])]
    print(f"IF {rule['text']} THEN {kind} ({rule['support']} rows)")
