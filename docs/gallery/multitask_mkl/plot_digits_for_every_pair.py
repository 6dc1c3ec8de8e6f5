"""
See which part of an image each task uses
=========================================

Tasks choose from the same kernels, but each task has its own weights: one task
can need the upper half of an image and another the lower. Here six tasks each
separate two digits by 40 images, with a Gaussian kernel per quarter of the
image.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from gramplane import MultiTaskMKLClassifier

images, digits = load_digits(return_X_y=True)
pairs = [(1, 7), (3, 8), (4, 9), (5, 6), (2, 3), (0, 6)]
rng = np.random.default_rng(0)
rows, task, first = [], [], []
for pair in pairs:
    chosen = rng.permutation(np.flatnonzero(np.isin(digits, pair)))[:200]
    rows.extend(chosen)
    task.extend([f"{pair[0]} or {pair[1]}"] * 200)
    first.extend(digits[chosen] == pair[0])
X, task, first = images[rows], np.array(task), np.array(first)
train = np.tile(np.arange(200) < 40, len(pairs))
quarters = {
    "upper left": (0, 0),
    "upper right": (0, 4),
    "lower left": (4, 0),
    "lower right": (4, 4),
}
pixels = {
    name: [8 * (r + i) + c + j for i in range(4) for j in range(4)]
    for name, (r, c) in quarters.items()
}
kernels = [
    f"rbf{list(columns)}".replace(" ", "") for columns in pixels.values()
]
model = MultiTaskMKLClassifier(kernels, p=6.0, C=10, scale=None).fit(
    X[train], first[train], task[train]
)

# %%
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
picture = axes.imshow(
    model.task_kernel_weights_, cmap="viridis", vmin=0, aspect="auto"
)
axes.set_xticks(range(len(pairs)), model.tasks_)
axes.set_yticks(range(4), list(quarters))
axes.set_title("Kernel weight of each quarter, by task")
figure.colorbar(picture, ax=axes, label="weight")

# %%
# Compare the columns: separating 1 from 7 uses other quarters than separating
# 4 from 9.
score = model.score(X[~train], first[~train], task[~train])
gap = model.dual_gap_ / model.objective_
print(f"accuracy on {np.sum(~train)} held-out images: {score:.3f}")
print(f"objective at most {gap:.1%} above the optimum")
