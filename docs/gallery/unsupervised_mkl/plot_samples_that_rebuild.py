"""
See which rows rebuild a row
============================

``bases_`` lists, for every row, the rows that rebuild it; for images of digits
most of them show the same digit. Use ``normalize="column_sum"``, which makes
the weights of a kernel a mean. With other normalisations a narrow kernel
copies the nearest neighbour and cancels the rest.
"""

# %%
import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from gramplane import UnsupervisedMKL

images, digits = load_digits(return_X_y=True)
images, digits = images[:400] / 16, digits[:400]
kernels = ["rbf(gamma=0.02)", "rbf(gamma=0.05)", "rbf(gamma=0.2)", "linear"]
model = UnsupervisedMKL(kernels, n_bases=5, normalize="column_sum").fit(images)

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
axes[0, 3].set_title("its five bases")

# %%
# An orange frame marks a basis that shows another digit.
same = digits[model.bases_] == digits[:, None]
print(f"bases that show the same digit: {same.mean():.1%}")
print(f"first bases that show the same digit: {same[:, 0].mean():.1%}")
for kernel, weight in zip(kernels, model.kernel_weights_, strict=True):
    print(f"{kernel:15s} weight {weight:.3f}")
