"""
Choose between few and many kernels
===================================

``v`` sets how many kernels a model keeps: ``v=0`` spreads the weight over all
useful kernels, ``v=1`` keeps as few as possible. This page repeats a figure of
Yang and others (IEEE Trans. Neural Networks 2011) for one table.
"""

# %%
# Ten measurements of tumours, with 13 kernels on all columns and 13 on each
# column.
import matplotlib.pyplot as plt
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from gramplane import MKLClassifier

X, y = load_breast_cancer(return_X_y=True)
X, X_test, y, y_test = train_test_split(
    X[:, :10], y, train_size=150, random_state=0, stratify=y
)
vs = (0.0, 0.25, 0.5, 0.75, 1.0)
models = [MKLClassifier(v=v, C=10, tol=0.01).fit(X, y) for v in vs]
counts = [len(model.support_) for model in models]
scores = [model.score(X_test, y_test) for model in models]

# %%
figure, (above, below) = plt.subplots(
    2, 1, figsize=(6.5, 4.4), sharex=True, layout="constrained"
)
above.plot(vs, scores, "o-", color="tab:blue")
above.set(
    ylim=(0.88, 0.96),
    ylabel=f"accuracy on\n{len(y_test)} test rows",
    title=f"Choosing from {len(models[0].kernel_weights_)} kernels",
)
below.plot(vs, counts, "s-", color="tab:orange")
below.set(
    xlabel="v (0: all useful kernels, 1: few kernels)",
    ylabel="kernels with weight",
    ylim=(0, 165),
)
for x, count in zip(vs, counts, strict=True):
    below.annotate(
        str(count), (x, count), textcoords="offset points", xytext=(4, 6)
    )

# %%
# Accuracy hardly changes while the number of kernels falls, because many
# kernels are redundant. Each fit is certified: the optimum lies between two
# bounds.
for v, model in zip(vs, models, strict=True):
    lower, upper = model.lower_bound_, model.upper_bound_
    print(f"v={v}: optimum between {lower:.1f} and {upper:.1f}")
