"""
Find planted features among thousands
=====================================

Put 40 features that matter among 4,000, with 600 rows, and count how many of them a method finds. This is a small edition of the first
experiment of Tan, Tsang and Wang (JMLR 2014, section 8.2), whose figure sets the machine against an :math:`\\ell_1` penalty.
"""

# %%
# For every number of features that a method may take, how many of the 40 are among them?
import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import LinearSVC

from gramplane import FGMClassifier
from gramplane.datasets import dense_linear

data = dense_linear(n=600, d=4000, relevant=40, n_test=2000, seed=1)
found = {"Feature Generating Machine": [], "l1 penalty (LinearSVC)": []}
for B in (5, 10, 15, 20):
    machine = FGMClassifier(B=B, max_rounds=4).fit(data.X, data.y)
    found["Feature Generating Machine"].append(
        (machine.selected_, machine.score(data.X_test, data.y_test))
    )
for C in (0.005, 0.01, 0.02, 0.04):
    lasso = LinearSVC(penalty="l1", C=C, dual=False).fit(data.X, data.y)
    found["l1 penalty (LinearSVC)"].append(
        (np.flatnonzero(lasso.coef_), lasso.score(data.X_test, data.y_test))
    )

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for (name, points), marker, colour in zip(
    found.items(), "os", ("tab:blue", "tab:orange"), strict=True
):
    sizes = [len(chosen) for chosen, _ in points]
    hits = [len(np.intersect1d(chosen, data.relevant)) for chosen, _ in points]
    left.plot(sizes, hits, marker=marker, color=colour, label=name)
    right.plot(
        sizes, [score for _, score in points], marker=marker, color=colour, label=name
    )
left.axhline(40, color="grey", linestyle=":")
left.set(xlabel="features selected", ylabel="of the 40 planted ones", title="Found")
right.set(
    xlabel="features selected", ylabel="accuracy on 2,000 test rows", title="Predicts"
)
left.legend()

# %%
# Notice both panels. With so few rows nobody finds all 40: weights were drawn evenly from 0 to 1, and the small ones drown. An
# :math:`\ell_1` penalty also shrinks the weights of what it keeps; the machine shrinks them less, as its penalty counts a cut of B
# features as one.
for name, points in found.items():
    chosen, score = points[-1]
    print(
        f"{name}: {len(chosen)} features, {len(np.intersect1d(chosen, data.relevant))} planted, accuracy {score:.3f}"
    )
