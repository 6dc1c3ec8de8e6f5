"""
Follow a path from all features to a few
========================================

One computation gives the kernel weights for every number of features, from all
to a few. Each feature has a Gaussian kernel. As p falls from 2 to 1 the
penalty becomes sparser, and kernels leave one after another. No kernel matrix
is stored.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from gramplane import KTASelectionPath
from gramplane.plots import PathDisplay

table = load_breast_cancer(as_frame=True)
X, X_test, y, y_test = train_test_split(
    table.data,
    table.target,
    test_size=0.4,
    random_state=0,
    stratify=table.target,
)
path = KTASelectionPath(n_machines=1).fit(X, y)
PathDisplay.from_estimator(path)

# %%
# ``p_for`` finds the point of the path with a given number of features, and
# ``svm_at`` the SVM there.
numbers = [6, 8, 10, 12, 16, 20, 30]
scores = [
    np.mean(path.svm_at(path.p_for(k)).predict(X_test) == y_test)
    for k in numbers
]
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot([len(path.active_at(path.p_for(k))) for k in numbers], scores, "o-")
axes.set(
    xlabel="features",
    ylabel=f"accuracy on {len(y_test)} test rows",
    title="SVMs along the path",
    ylim=(0.85, 1),
)

# %%
# Accuracy rises little after the first few features. These are the last six:
print(*X.columns[path.active_at(path.p_for(6))], sep="\n")
best = np.argmax(scores)
print(f"accuracy {scores[0]:.3f} with {numbers[0]} features;", end=" ")
print(f"highest {scores[best]:.3f}, with {numbers[best]}")
