"""
Choose groups: which parts of a picture tell 3 from 8
=====================================================

Features often come in families: the levels of a category, the genes of a pathway, the pixels of a patch. With ``groups=`` a cut takes
whole groups, here the 16 patches of 2 x 2 pixels of small digits.
"""

# %%
# Three patches are allowed, one per round.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gramplane import FGMClassifier

images, digits = load_digits(return_X_y=True)
pair = np.isin(digits, [3, 8])
X, X_test, y, y_test = train_test_split(
    images[pair], digits[pair], test_size=0.5, random_state=0
)

row, column = np.divmod(np.arange(64), 8)
patch = 4 * (row // 2) + column // 2
model = FGMClassifier(B=1, n_features_to_select=3, groups=patch).fit(X, y)
print(
    f"patches {model.selected_.tolist()} of 16: test accuracy {model.score(X_test, y_test):.3f}"
)

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
for ax, digit in zip(axes[:2], (3, 8), strict=True):
    ax.imshow(X[y == digit].mean(axis=0).reshape(8, 8), cmap="Greys")
    ax.set_title(f"mean of all {digit}s")
used = np.isin(patch, model.selected_).reshape(8, 8)
shown = np.where(used, model.coef_[0].reshape(8, 8), np.nan)
limit = np.nanmax(np.abs(shown))
picture = axes[2].imshow(shown, cmap="PuOr", vmin=-limit, vmax=limit)
axes[2].set_title("ink there speaks for\n3 (orange), 8 (violet)")
figure.colorbar(picture, ax=axes[2])
for ax in axes:
    ax.set(xticks=[], yticks=[])

# %%
# Notice where the patches lie: at the left, where an 8 is closed and a 3 is open. Twelve pixels of 64 were enough for most of the digits.
