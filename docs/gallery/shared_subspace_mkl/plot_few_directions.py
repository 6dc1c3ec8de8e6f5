"""
Find the few directions that many tasks share
=============================================

Thirty tasks with a dozen rows each reveal a subspace that no single task could
show. Thirty sensors respond to two hidden causes, each with its own mixture.
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
model = SharedSubspaceMKLRegressor(
    ["linear"], loss="squared", C=10, scale=None
).fit(X, y, task)

# %%
# Two eigenvalues of the couplings stand out: the tasks share two directions.
# Their eigenvectors give the mixture of each sensor.
values, vectors = np.linalg.eigh(model.subspace_[0])
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.6), layout="constrained"
)
left.bar(range(1, 11), values[::-1][:10], color="tab:blue")
left.set(
    xlabel="rank",
    ylabel="eigenvalue of the couplings",
    title="Two directions",
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
    xlabel="true share of a cause",
    ylabel="share read from the couplings",
    title="Mixtures of 30 sensors (rotated)",
)
right.legend()

# %%
# Learning together also predicts better than one model per sensor:
X_new, task_new = (
    rng.standard_normal((6000, 20)),
    np.repeat(np.arange(30), 200),
)
y_new = (X_new * weights[task_new]).sum(axis=1)
alone = [
    RidgeCV(np.logspace(-2, 3, 20))
    .fit(X[task == t], y[task == t])
    .predict(X_new[task_new == t])
    for t in range(30)
]
error = np.mean((np.concatenate(alone) - y_new) ** 2)
print("R² on new rows:")
print(f"  together         {model.score(X_new, y_new, task_new):.3f}")
print(f"  ridge per sensor {1 - error / y_new.var():.3f}")
