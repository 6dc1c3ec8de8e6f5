"""
Order the pixels of a picture by what they tell
===============================================

The path ranks features by the point where they leave. Drawn as a picture, the ranks show which pixels tell one digit from the others.
"""

# %%
# Of each digit against the rest: the p at which a pixel's kernel leaves. Dark pixels stay longest. By default the path ends with about ten
# kernels; twice the ``lam2_`` that it found for that goes further down.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from gramplane import KTASelectionPath

images, digits = load_digits(return_X_y=True)
some = np.random.default_rng(0).choice(len(digits), 500, replace=False)
figure, axes = plt.subplots(2, 4, figsize=(9, 4.6), layout="constrained")
kept = {}
for d, (above, below) in zip((0, 1, 4, 7), axes.T, strict=True):
    start = KTASelectionPath(n_machines=1, dp=0.1).fit(images[some], digits[some] == d)
    path = KTASelectionPath(n_machines=1, lam2=2 * start.lam2_).fit(
        images[some], digits[some] == d
    )
    leaves = np.clip(path.junctures_, 1.0, 2.0)
    above.imshow(images[digits == d].mean(axis=0).reshape(8, 8), cmap="Greys")
    above.set_title(f"mean {d}")
    picture = below.imshow(leaves.reshape(8, 8), cmap="viridis", vmin=1, vmax=2)
    kept[d] = path.active_at(path.p_for(6))
    below.scatter(kept[d] % 8, kept[d] // 8, marker="x", color="white", s=60)
    for ax in (above, below):
        ax.set(xticks=[], yticks=[])
figure.colorbar(picture, ax=axes, label="p at which the pixel leaves (1: it stays)")

# %%
# Notice the crosses, the last pixels of each path: for 0 the middle, which is empty in no other digit.
print(
    {d: [f"row {k // 8} column {k % 8}" for k in pixels] for d, pixels in kept.items()}
)
