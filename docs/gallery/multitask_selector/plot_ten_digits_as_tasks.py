"""
Which pixels does nobody need? Ten digits as ten tasks
======================================================

"Is it a 0?", "is it a 1?" and so on are ten tasks on the same pictures. Selected together they tell which pixels no question needs.
"""

# %%
# Every task has its own 80 pictures, half of them of its digit.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import scale

from gramplane import MultiTaskSelector

images, digits = load_digits(return_X_y=True)
X, rng = scale(images), np.random.default_rng(0)
rows = [
    np.concatenate(
        [
            rng.choice(np.flatnonzero((digits == d) == own), 40, replace=False)
            for own in (True, False)
        ]
    )
    for d in range(10)
]
task = np.repeat(np.arange(10), 80)
y = np.where(digits[np.concatenate(rows)] == task, "yes", "no")
model = MultiTaskSelector(
    loss="logistic", penalty="amtfs", algorithm="fista", refit=0.1
).fit(X[np.concatenate(rows)], y, task)

# %%
figure, axes = plt.subplots(2, 6, figsize=(10, 3.8), layout="constrained")
limit = np.abs(model.coef_).max()
for ax, d in zip(axes[:, :5].ravel(), range(10), strict=True):
    picture = ax.imshow(
        model.coef_[d].reshape(8, 8), cmap="PuOr", vmin=-limit, vmax=limit
    )
    ax.set_title(f"is it a {d}?", fontsize=10)
axes[0, 5].imshow(model.get_support().reshape(8, 8), cmap="Greys")
axes[0, 5].set_title(f"{model.get_support().sum()} of 64 used", fontsize=10)
axes[1, 5].imshow(images.mean(axis=0).reshape(8, 8), cmap="Greys")
axes[1, 5].set_title("mean picture", fontsize=10)
for ax in axes.ravel():
    ax.set(xticks=[], yticks=[])
figure.colorbar(picture, ax=axes, label="weight (violet: yes)")

# %%
# Notice the white fields in the last picture of the upper row: half of the pixels serve no question at all. On those that are left each
# question has a pattern of its own.
left = np.setdiff1d(np.arange(len(X)), np.concatenate(rows))
right = np.mean(
    [
        (model.decision_function(X[left], np.full(left.size, d)) > 0)
        == (digits[left] == d)
        for d in range(10)
    ]
)
print(
    f"answers right on pictures of no task: {right:.3f} (always 'no': {np.mean([(digits[left] != d) for d in range(10)]):.3f})"
)
