"""
Learn from a stream without keeping it
======================================

Rows that arrive faster than they can be kept are seen once and forgotten. This page streams the pixels of a photograph: what colour does a
pixel have, given the 48 pixels around it? A group of three columns (red, green, blue) stands for each neighbour, and the group lasso says
which neighbours are worth looking at.
"""

# %%
# Rows that are made as they come
# -------------------------------
import matplotlib.pyplot as plt
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import load_sample_image

from gramplane import GroupLassoRegressor

photograph = load_sample_image("china.jpg")[:, :, :] / 255.0 - 0.5
patches = sliding_window_view(
    photograph, (7, 7), axis=(0, 1)
)  # (rows, columns, colour, 7, 7): a view, nothing is copied
around = np.delete(np.arange(49), 24)
rng = np.random.default_rng(0)


def portion(n):
    """Return n rows of the stream: the neighbours of random pixels, and the green of the pixels themselves."""
    seen = patches[
        rng.integers(0, patches.shape[0], n), rng.integers(0, patches.shape[1], n)
    ].reshape(n, 3, 49)
    return seen[:, :, around].transpose(0, 2, 1).reshape(n, 144), seen[:, 1, 24]


groups = np.repeat(np.arange(48), 3)
X_test, y_test = portion(2000)

# %%
# 40,000 rows, 500 at a time
# --------------------------
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
    ylabel="R2 on 2,000 other pixels",
    title="Seen once, and forgotten",
)
axes[0].legend()
for ax, (lam, model) in zip(axes[1:], models.items(), strict=True):
    lengths = np.full(49, np.nan)
    lengths[around] = np.linalg.norm(model.coef_[0].reshape(48, 3), axis=1)
    picture = ax.imshow(lengths.reshape(7, 7), cmap="viridis", vmin=0)
    ax.plot(3, 3, "x", color="black")
    ax.set(
        title=f"lam = {lam}: {np.count_nonzero(lengths > 0)} of 48",
        xticks=[],
        yticks=[],
    )
    figure.colorbar(picture, ax=ax, shrink=0.8, label="weight of a neighbour")

# %%
# The black cross is the pixel itself. Nobody said which column is next to which: the stream taught that what is next door matters most.
#
# The same bits, however the stream is cut
# ----------------------------------------
rng = np.random.default_rng(7)
X, y = portion(3000)
whole = GroupLassoRegressor(lam=0.003, gamma=20.0, groups=groups).partial_fit(X, y)
cut = GroupLassoRegressor(lam=0.003, gamma=20.0, groups=groups)
for rows in np.split(np.arange(3000), [1, 10, 700, 701, 2222]):
    cut.partial_fit(X[rows], y[rows])
print("weights equal, bit for bit:", np.array_equal(whole.coef_, cut.coef_))

# %%
# What to try when it is bad
# --------------------------
# * **Weights explode at first**: ``gamma`` is below a row's squared length; make it larger. It paces the steps.
# * **It learns too slowly**: ``gamma`` is too large; a tenth of it.
# * **Everything, or nothing, is selected**: ``lam``. A stream cannot find it by itself (its default is 0.01); try a sample as a batch first
#   (``algorithm="fista"``, ``lam="auto"``), which has a certificate, too.
# * **Columns of very different widths**: scale them before; a stream does not know the widths of what is to come.
# * **The world changes**: dual averaging remembers everything alike. Begin anew from time to time.
