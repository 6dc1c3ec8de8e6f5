"""
Which part of a picture all questions need
==========================================

Six questions on digits, each with forty pictures, and a Gaussian kernel for every quarter of a picture. The tasks decide together which
quarters are worth looking at, with a number for each.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from gramplane import MultiTaskMKLClassifier

images, digits = load_digits(return_X_y=True)
pairs, rng = [(1, 7), (3, 8), (4, 9), (5, 6), (2, 3), (0, 6)], np.random.default_rng(0)
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
kernels = [f"rbf{list(columns)}".replace(" ", "") for columns in pixels.values()]
model = MultiTaskMKLClassifier(kernels, p=6.0, C=10, scale=None).fit(
    X[train], first[train], task[train]
)

# %%
figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
picture = axes.imshow(model.task_kernel_weights_, cmap="viridis", vmin=0, aspect="auto")
axes.set_xticks(range(len(pairs)), model.tasks_)
axes.set_yticks(range(4), list(quarters))
axes.set_title("Weight of the quarters, task by task")
figure.colorbar(picture, ax=axes)

# %%
# Notice the columns: to tell 1 from 7 one looks elsewhere than to tell 4 from 9.
score = model.score(X[~train], first[~train], task[~train])
print(
    f"accuracy on {np.sum(~train)} other pictures: {score:.3f}; gap {model.dual_gap_:.2g} of {model.objective_:.2f}"
)
