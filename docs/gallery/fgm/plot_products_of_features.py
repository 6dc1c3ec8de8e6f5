"""
Find the product of two features that decides
=============================================

``feature_map="poly2"`` searches all products of two features without computing
them. Here the class depends on one product of 200 features: neither of its two
features predicts anything alone. There are 20,100 products and squares to
choose from.
"""

# %%
# The label is the sign of :math:`x_3 x_{41}`. One training label in ten is
# flipped.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import FGMClassifier

rng = np.random.default_rng(0)
X, X_test = rng.standard_normal((500, 200)), rng.standard_normal((500, 200))
y, y_test = (np.sign(part[:, 3] * part[:, 41]) for part in (X, X_test))
y[rng.random(500) < 0.1] *= -1

linear = FGMClassifier(B=2, max_rounds=2).fit(X, y)
products = FGMClassifier(
    B=1, max_rounds=1, feature_map="poly2", scale=None
).fit(X, y)
for name, model in (("features", linear), ("products", products)):
    score = model.score(X_test, y_test)
    print(f"{name} {model.selected_.tolist()}: test accuracy {score:.3f}")

# %%
# The decision value of the model with one product, over its two features:
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
# The model has the shape of a saddle, which no linear model can have.
# ``selected_`` has a row of two ids for each product. A second id of -1 means
# a linear term.
