"""
Unfold a bent sheet
===================

Minimum volume embedding unfolds data that lie on a bent surface. It keeps the
distances of neighbours and puts as much of the rest as possible into two
dimensions.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_s_curve
from sklearn.decomposition import PCA

from gramplane import MinimumVolumeEmbedding

X, along = make_s_curve(200, random_state=0)
model = MinimumVolumeEmbedding(
    n_neighbors=5, graph="union", tol=1e-3, max_iter=60
).fit(X)

# %%
figure = plt.figure(figsize=(11, 3.6), layout="constrained")
solid = figure.add_subplot(1, 3, 1, projection="3d")
solid.scatter(*X.T, c=along, cmap="viridis", s=10)
solid.set_title("data")
for k, (name, places) in enumerate(
    (
        ("two principal components", PCA(2).fit_transform(X)),
        ("minimum volume embedding", model.embedding_),
    ),
    2,
):
    ax = figure.add_subplot(1, 3, k)
    ax.scatter(*places.T, c=along, cmap="viridis", s=14)
    ax.set(title=name, xticks=[], yticks=[])

# %%
# In the right panel, colours run from one side to the other. Two principal
# components show the sheet from its edge.
for name, places in (
    ("principal components", PCA(2).fit_transform(X)),
    ("embedding", model.embedding_),
):
    share = abs(np.corrcoef(places[:, 0], along)[0, 1])
    print(f"{name}: correlation with the position on the sheet {share:.3f}")
