"""
Choose products of two features without forming them
====================================================

Two switches in series: only their product says anything, each one alone nothing. Among 200 features there are 20,100 products and
squares, which ``feature_map="poly2"`` searches without writing them down.
"""

# %%
# The label is the sign of :math:`x_3 x_{41}`, with a tenth of the labels turned over.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import FGMClassifier

rng = np.random.default_rng(0)
X, X_test = rng.standard_normal((500, 200)), rng.standard_normal((500, 200))
y, y_test = (np.sign(part[:, 3] * part[:, 41]) for part in (X, X_test))
y[rng.random(500) < 0.1] *= -1

linear = FGMClassifier(B=2, max_rounds=2).fit(X, y)
products = FGMClassifier(B=1, max_rounds=1, feature_map="poly2", scale=None).fit(X, y)
print(
    f"linear: features {linear.selected_.tolist()}, test accuracy {linear.score(X_test, y_test):.3f}"
)
print(
    f"products: pairs {products.selected_.tolist()}, test accuracy {products.score(X_test, y_test):.3f}"
)

# %%
# What the machine on one product has learnt, seen in the plane of the two features:
figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
side = np.linspace(-3, 3, 120)
grid = np.zeros((side.size**2, 200))
grid[:, [3, 41]] = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
values = products.decision_function(grid).reshape(side.size, side.size)
limit = np.abs(values).max()
colours = axes.contourf(
    side, side, values, levels=np.linspace(-limit, limit, 21), cmap="PuOr"
)
for label, marker in ((-1, "o"), (1, "^")):
    axes.scatter(
        *X_test[y_test == label][:150, [3, 41]].T,
        s=14,
        c="k",
        marker=marker,
        alpha=0.6,
        label=f"class {label:+d}",
    )
axes.set(
    xlabel="feature 3",
    ylabel="feature 41",
    title="Decision value of one product",
    xlim=(-3, 3),
    ylim=(-3, 3),
)
axes.legend(loc="upper left")
figure.colorbar(colours, ax=axes, label="decision value")

# %%
# Notice the saddle: no linear machine has it, and none is better than chance here. ``selected_`` has a row of two ids for every product;
# a second id of -1 would stand for a linear term.
