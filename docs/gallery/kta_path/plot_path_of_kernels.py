"""
A path from all features to a few
=================================

Every feature has a Gaussian kernel of its own. As p falls from 2 to 1 the penalty gets sparser, and kernels leave one after another; the
path gives the weights at every p from one computation, without ever forming a Gram matrix.
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
    table.data, table.target, test_size=0.4, random_state=0, stratify=table.target
)
path = KTASelectionPath(n_machines=1).fit(
    X, y
)  # down to about ten kernels, or as here fewer
PathDisplay.from_estimator(path)

# %%
# At any point of the path stands a machine. ``p_for`` tells the point with a wanted number of features.
numbers = [6, 8, 10, 12, 16, 20, 30]
scores = [
    np.mean(path.svm_at(path.p_for(k)).predict(X_test) == y_test) for k in numbers
]
figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
axes.plot([len(path.active_at(path.p_for(k))) for k in numbers], scores, "o-")
axes.set(
    xlabel="features at that point",
    ylabel=f"accuracy on {len(y_test)} test rows",
    title="Machines along the path",
    ylim=(0.85, 1),
)

# %%
# Notice how early the curve is flat. Who asks for six features gets these:
print(X.columns[path.active_at(path.p_for(6))].tolist())
best = np.argmax(scores)
print(
    f"highest accuracy {scores[best]:.3f} with {numbers[best]} features, {scores[0]:.3f} with {numbers[0]}"
)
