"""
Which samples rebuild which
===========================

``bases_`` lists for every sample those that rebuild it. For pictures this can be looked at: a digit, and the others it is made of.
Columns of kernels should sum to one over the bases (``normalize="column_sum"``), as weights of a mean do: with other normalisations a
narrow kernel rebuilds a sample from its nearest neighbour and cancels the rest.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from gramplane import UnsupervisedMKL

images, digits = load_digits(return_X_y=True)
images, digits = images[:400] / 16, digits[:400]
model = UnsupervisedMKL(
    ["rbf(gamma=0.02)", "rbf(gamma=0.05)", "rbf(gamma=0.2)", "linear"],
    n_bases=5,
    normalize="column_sum",
).fit(images)

# %%
figure, axes = plt.subplots(5, 6, figsize=(6.5, 5.6), layout="constrained")
for row, sample in zip(axes, (3, 17, 42, 101, 255), strict=True):
    for ax, index in zip(row, [sample, *model.bases_[sample]], strict=True):
        ax.imshow(images[index].reshape(8, 8), cmap="Greys")
        ax.set(xticks=[], yticks=[])
        if index != sample and digits[index] != digits[sample]:
            ax.spines[:].set(color="#D55E00", linewidth=3)
    row[0].spines[:].set(color="#0072B2", linewidth=3)
axes[0, 0].set_title("sample")
axes[0, 3].set_title("its five bases, first to last")

# %%
# Notice the frames: an orange one marks a basis that shows another digit.
same = digits[model.bases_] == digits[:, None]
print(
    f"bases that show the sample's own digit: {same.mean():.3f}; the first one: {same[:, 0].mean():.3f}"
)
print(
    "kernel weights:",
    dict(
        zip(
            ["rbf(0.02)", "rbf(0.05)", "rbf(0.2)", "linear"],
            np.round(model.kernel_weights_, 3).tolist(),
            strict=True,
        )
    ),
)
