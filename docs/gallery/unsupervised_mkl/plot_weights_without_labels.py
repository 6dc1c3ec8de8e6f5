"""
Learn kernel weights without labels
===================================

``UnsupervisedMKL`` weights kernels so that each row is rebuilt best from a few
similar rows. The principal components of the learned kernel make a map.
"""

# %%
import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import scale

from gramplane import UnsupervisedMKL
from gramplane.plots import WeightsDisplay

X, cultivar = load_wine(return_X_y=True)
X = scale(X)
kernels = [f"rbf(gamma={g})" for g in (0.001, 0.01, 0.03, 0.1, 1)] + ["linear"]
model = UnsupervisedMKL(kernels, normalize="column_sum").fit(X)
WeightsDisplay.from_estimator(model)

# %%
# The map, coloured by cultivar. The fit did not use the cultivars.
places = model.transform(X)
figure, axes = plt.subplots(figsize=(5.5, 4), layout="constrained")
for c, marker, colour in (
    (0, "o", "#0072B2"),
    (1, "^", "#D55E00"),
    (2, "s", "#009E73"),
):
    axes.scatter(
        *places[cultivar == c].T,
        marker=marker,
        c=colour,
        s=20,
        label=f"cultivar {c}",
    )
axes.set(
    xlabel="component 0",
    ylabel="component 1",
    title="178 wines under the learned kernel",
)
axes.legend()

# %%
# The cultivars are separate on the map:
score = cross_val_score(KNeighborsClassifier(5), places, cultivar, cv=5).mean()
print(f"accuracy of five nearest neighbours on the map: {score:.3f}")
