"""
Combine several views of images
===============================

A learned sum of kernels predicts as well as the best view of an image, without
being told which view that is. Pixels, ink by row and column, edges and
frequencies each give a kernel here; a view of pure noise is the control.
"""

# %%
# Make four views and noise
# -------------------------
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gramplane import MKLClassifier

images, digits = load_digits(return_X_y=True)
square = images.reshape(-1, 8, 8) / 16
views = {
    "pixels": square.reshape(-1, 64),
    "ink by row and column": np.hstack(
        [square.sum(axis=1), square.sum(axis=2)]
    ),
    "edges": np.hstack(
        [
            np.diff(square, axis=1).reshape(-1, 56),
            np.diff(square, axis=2).reshape(-1, 56),
        ]
    ),
    "frequencies": np.abs(np.fft.rfft2(square)).reshape(len(square), -1),
    "noise": np.random.default_rng(0).standard_normal((len(square), 20)),
}
X = np.hstack(list(views.values()))
ends = np.cumsum([view.shape[1] for view in views.values()])
columns = {
    name: f"{end - view.shape[1]}:{end}"
    for (name, view), end in zip(views.items(), ends, strict=True)
}

# %%
# Learn the kernel weights
# ------------------------
# The views stand side by side as columns, and each kernel names its own.
# ``rbf`` without ``gamma`` takes the median distance between rows.
kernels = {name: f"rbf[{part}]" for name, part in columns.items()}
X, X_test, y, y_test = train_test_split(
    X, digits, train_size=300, random_state=0, stratify=digits
)
scores = {
    name: MKLClassifier([kernel], C=10, scale=None)
    .fit(X, y)
    .score(X_test, y_test)
    for name, kernel in kernels.items()
}
model = MKLClassifier(
    list(kernels.values()), C=10, constraint="elastic_net", v=0.5, scale=None
).fit(X, y)
scores["learned sum"] = model.score(X_test, y_test)

# %%
# The ten digits are ten binary problems, each with its own kernel weights:
figure, (left, right) = plt.subplots(
    1, 2, figsize=(11.5, 3.8), width_ratios=(3, 2), layout="constrained"
)
picture = left.imshow(
    model.kernel_weights_.T, cmap="viridis", vmin=0, aspect="auto"
)
left.set_xticks(range(10), model.classes_)
left.set_yticks(range(len(views)), list(views))
left.set(xlabel="digit against the rest", title="Kernel weights")
figure.colorbar(picture, ax=left, label="weight")
bars = right.barh(
    list(scores),
    list(scores.values()),
    color=["#56B4E9"] * len(views) + ["#0072B2"],
)
right.bar_label(bars, [f"{score:.3f}" for score in scores.values()], padding=3)
right.set(
    xlim=(0, 1.2),
    xlabel=f"accuracy on {len(y_test)} held-out images",
    title="Single views, and their sum",
)

# %%
# Noise has the smallest weight for most digits. The certificate bounds how far
# the weights are from the best ones:
is_least = model.kernel_weights_.argmin(axis=1) == list(views).index("noise")
print(f"noise has the smallest weight for {np.sum(is_least)} of ten digits")
gap = model.dual_gap_ / model.objective_
print(f"objective at most {gap:.2%} above the optimum")

# %%
# What to try when it is bad
# --------------------------
# * **The sum is no better than the best view**: redundant views add nothing.
#   ``constraint="simplex"`` keeps the fewest.
# * **One view takes all the weight**: the kernel widths may be wrong for the
#   others. Offer several widths per view.
# * **Accuracy is low for all views**: search for ``C``.
#   :class:`~gramplane.MKLClassifierCV` reuses the kernel matrices.
# * **You have only kernel matrices** (graphs, strings): use
#   ``kernels="precomputed"``, or :func:`~gramplane.ingest_grams`.
# * **Too many rows for kernel matrices**: ``grams="store"`` keeps them on
#   disk; see the page on tables larger than memory.
