"""
Hold back a machine that could memorise everything
==================================================

The exponential of a sum of kernels can make every row unlike all others; then training rows are all right and nothing is learnt.
``penalty`` is the price of kernel weights: high enough, it holds the machine back.
"""

# %%
# Diabetes patients, above or below the median progression: a table in which one cannot be right for everybody.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from gramplane import TwoLayerMKLClassifier

X, target = load_diabetes(return_X_y=True)
X, X_test, y, y_test = train_test_split(
    X, target > np.median(target), train_size=200, random_state=0
)
default = TwoLayerMKLClassifier(["rbf", "linear", "poly(degree=2)"], scale=None).fit(
    X, y
)
shares = (0.1, 0.3, 1, 2, 3, 5, 10, 30)
models = [
    TwoLayerMKLClassifier(
        ["rbf", "linear", "poly(degree=2)"],
        penalty=share * default.penalty_,
        scale=None,
    ).fit(X, y)
    for share in shares
]

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
axes.semilogx(
    shares,
    [m.score(X, y) for m in models],
    "s--",
    color="tab:orange",
    label="training rows",
)
axes.semilogx(
    shares,
    [m.score(X_test, y_test) for m in models],
    "o-",
    color="tab:blue",
    label=f"{len(y_test)} test rows",
)
axes.axvline(1, color="grey", linestyle=":", label="the default")
axes.set(
    xlabel="penalty, as a multiple of the default (a tenth of the rows)",
    ylabel="accuracy",
    title="The left end learns by heart",
)
axes.legend()

# %%
# Notice the distance of the two lines: training accuracy says nothing about a machine that can memorise. On a noisy table like this one the
# default is too low; three to ten times as much is right, and cross-validation finds it.
print(
    f"default penalty {default.penalty_:.1f}: training {default.score(X, y):.3f}, test {default.score(X_test, y_test):.3f}"
)
