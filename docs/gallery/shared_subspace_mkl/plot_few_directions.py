"""
Thirty tasks, two directions
============================

Thirty sensors respond to two hidden causes, each with its own mixture. Every sensor has only a dozen rows, but all of them together show
the plane in which the thirty answers lie.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import RidgeCV

from gramplane import SharedSubspaceMKLRegressor

rng = np.random.default_rng(0)
causes = np.linalg.qr(rng.standard_normal((20, 2)))[0].T
mixtures = rng.standard_normal((30, 2))
weights = 3 * mixtures @ causes
X, task = rng.standard_normal((360, 20)), np.repeat(np.arange(30), 12)
y = (X * weights[task]).sum(axis=1) + rng.standard_normal(360)
model = SharedSubspaceMKLRegressor(["linear"], loss="squared", C=10, scale=None).fit(
    X, y, task
)

# %%
# The leading eigenvectors of the couplings are the plane; the others should be next to nothing.
values, vectors = np.linalg.eigh(model.subspace_[0])
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.bar(range(1, 11), values[::-1][:10], color="tab:blue")
left.set(
    xlabel="eigenvalue of the couplings",
    ylabel="size",
    title="Two stand out",
    xticks=range(1, 11),
)
places = vectors[:, ::-1][:, :2] * np.sqrt(values[::-1][:2])
turn = np.linalg.lstsq(places, mixtures, rcond=None)[0]
for k, marker, colour in ((0, "o", "tab:blue"), (1, "^", "tab:orange")):
    right.scatter(
        mixtures[:, k],
        (places @ turn)[:, k],
        marker=marker,
        c=colour,
        label=f"cause {k}",
    )
right.axline((0, 0), slope=1, color="grey", linewidth=0.8)
right.set(
    xlabel="true share of a cause in a sensor",
    ylabel="read from the couplings",
    title="30 sensors, turned to the causes",
)
right.legend()

# %%
X_new, task_new = rng.standard_normal((6000, 20)), np.repeat(np.arange(30), 200)
y_new = (X_new * weights[task_new]).sum(axis=1)
alone = [
    RidgeCV(np.logspace(-2, 3, 20))
    .fit(X[task == t], y[task == t])
    .predict(X_new[task_new == t])
    for t in range(30)
]
print(f"R2 on new rows: together {model.score(X_new, y_new, task_new):.3f},", end=" ")
print(
    f"a ridge regression per sensor {1 - np.mean((np.concatenate(alone) - y_new) ** 2) / y_new.var():.3f}"
)
