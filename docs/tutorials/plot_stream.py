"""
Learn from a stream without storing it
======================================

The group lasso learns from rows that it sees once, and selects few groups of
features on the way. Here the stream consists of the pixels of a photograph:
predict the green of a pixel from the 48 pixels around it. Each neighbour is a
group of three columns (red, green, blue).
"""

# %%
# Make rows as they come
# ----------------------
import matplotlib.pyplot as plt
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_sample_image

from gramplane import GroupLassoRegressor

photograph = load_sample_image("china.jpg") / 255.0 - 0.5
# A view of shape (rows, columns, colours, 7, 7), which copies nothing.
patches = sliding_window_view(photograph, (7, 7), axis=(0, 1))
around = np.delete(np.arange(49), 24)
rng = np.random.default_rng(0)


def portion(n):
    """Return the neighbours of n random pixels, and the green of each."""
    row = rng.integers(0, patches.shape[0], n)
    column = rng.integers(0, patches.shape[1], n)
    seen = patches[row, column].reshape(n, 3, 49)
    neighbours = seen[:, :, around].transpose(0, 2, 1).reshape(n, 144)
    return neighbours, seen[:, 1, 24]


groups = np.repeat(np.arange(48), 3)
X_test, y_test = portion(2000)

# %%
# Learn from 40,000 rows, 500 at a time
# -------------------------------------
# Two models differ in ``lam``, the strength of the penalty.
models = {
    lam: GroupLassoRegressor(lam=lam, gamma=20.0, groups=groups)
    for lam in (0.001, 0.02)
}
seen, scores = [], {lam: [] for lam in models}
for k in range(80):
    X, y = portion(500)
    for lam, model in models.items():
        model.partial_fit(X, y)
        if k in (0, 1, 3, 7, 15, 31, 63, 79):
            scores[lam].append(model.score(X_test, y_test))
    if k in (0, 1, 3, 7, 15, 31, 63, 79):
        seen.append(500 * (k + 1))

# %%
figure, axes = plt.subplots(1, 3, figsize=(11.5, 3.6), layout="constrained")
for (lam, values), style in zip(scores.items(), ("o-", "s--"), strict=True):
    axes[0].semilogx(seen, values, style, label=f"lam = {lam}")
axes[0].set(
    xlabel="pixels seen",
    ylabel="R² on 2,000 held-out pixels",
    title="Prediction",
)
axes[0].legend()
for ax, (lam, model) in zip(axes[1:], models.items(), strict=True):
    lengths = np.full(49, np.nan)
    lengths[around] = np.linalg.norm(model.coef_[0].reshape(48, 3), axis=1)
    picture = ax.imshow(lengths.reshape(7, 7), cmap="viridis", vmin=0)
    ax.plot(3, 3, "x", color="black")
    ax.set(
        title=f"lam = {lam}: {np.sum(lengths > 0)} of 48",
        xticks=[],
        yticks=[],
    )
    figure.colorbar(picture, ax=ax, shrink=0.8, label="weight of a neighbour")

# %%
# The nearest neighbours matter most, and the model found them without knowing
# where each column comes from.
#
# Cut the stream anywhere
# -----------------------
# The weights do not depend on how the rows are cut into portions:
rng = np.random.default_rng(7)
X, y = portion(3000)
whole = GroupLassoRegressor(lam=0.003, gamma=20.0, groups=groups).partial_fit(
    X, y
)
cut = GroupLassoRegressor(lam=0.003, gamma=20.0, groups=groups)
for rows in np.split(np.arange(3000), [1, 10, 700, 701, 2222]):
    cut.partial_fit(X[rows], y[rows])
same = np.array_equal(whole.coef_, cut.coef_)
print(f"equal to the last bit: {'yes' if same else 'no'}")

# %%
# What to try when it is bad
# --------------------------
# * **Weights explode at first**: ``gamma`` is below the squared length of a
#   row. Make it larger; it sets the step length.
# * **It learns too slowly**: ``gamma`` is too large. Try a tenth of it.
# * **Everything, or nothing, is selected**: change ``lam``. A stream cannot
#   choose it (the default is 0.01). Fit a sample as a batch first
#   (``algorithm="fista"``, ``lam="auto"``), which also gives a certificate.
# * **Columns differ in scale**: scale them before, because a stream does not
#   know the rows to come.
# * **The world changes**: dual averaging gives all rows the same weight. Start
#   a new model from time to time.
