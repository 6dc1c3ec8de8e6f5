"""
Select groups, features, or both
================================

If only some features of a group matter, ``penalty="sgl"`` selects few groups
and few features within them. The plain group lasso (``gl``) keeps whole
groups; an :math:`\\ell_1` penalty (``l1``) ignores groups.
"""

# %%
# There are 20 groups of eight features. In three groups, five features matter.
# Cross-validation chooses the strength of each penalty.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import GroupLassoRegressorCV

rng = np.random.default_rng(0)
groups = np.repeat(np.arange(20), 8)
truth = np.zeros(160)
truth[
    np.concatenate([8 + np.arange(5), 40 + np.arange(5), 96 + np.arange(5)])
] = rng.choice([-1, 1], 15) * rng.uniform(0.5, 1.5, 15)
X, X_test = rng.standard_normal((120, 160)), rng.standard_normal((1000, 160))
y, y_test = X @ truth + 2 * rng.standard_normal(120), X_test @ truth
models = {
    "l1: features": GroupLassoRegressorCV(
        penalty="l1", algorithm="fista", one_standard_error=True
    ),
    "gl: groups": GroupLassoRegressorCV(
        penalty="gl", groups=groups, algorithm="fista", one_standard_error=True
    ),
    "sgl: both": GroupLassoRegressorCV(
        penalty="sgl",
        groups=groups,
        algorithm="fista",
        one_standard_error=True,
    ),
}
for model in models.values():
    model.fit(X, y)

# %%
figure, rows = plt.subplots(
    4, 1, figsize=(7.5, 5), sharex=True, sharey=True, layout="constrained"
)
for ax, (name, weights) in zip(
    rows,
    [("truth", truth), *((n, m.coef_[0]) for n, m in models.items())],
    strict=True,
):
    ax.vlines(
        np.arange(160),
        0,
        weights,
        color="black" if name == "truth" else "tab:blue",
    )
    used = len(np.unique(groups[weights != 0]))
    ax.set_title(
        f"{name}: {np.count_nonzero(weights)} features in {used} groups",
        loc="left",
        fontsize=10,
    )
    ax.axhline(0, color="grey", linewidth=0.5)
rows[-1].set(xlabel="feature", xticks=np.arange(0, 160, 8))
figure.supylabel("weight")

# %%
# The group lasso keeps blocks of eight features; the sparse group lasso thins
# them out. Which one predicts best depends on which picture is true:
for name, model in models.items():
    score = model.score(X_test, y_test)
    print(f"{name:13s} R² {score:.3f} on 1,000 noise-free test rows")
