"""
Draw a graph so that it can be read back
========================================

Structure preserving embedding needs no columns, only edges: it lays out a graph so that whoever is linked is nearer than whoever is not.
"""

# %%
# A ring of twelve with a tail, and two bridges.
import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from gramplane import StructurePreservingEmbedding

edges = [(k, (k + 1) % 12) for k in range(12)] + [
    (0, 12),
    (12, 13),
    (13, 14),
    (14, 15),
    (2, 8),
]
ends = np.sort(edges, axis=1).T  # one triangle is enough
graph = sp.csr_array((np.ones(len(edges)), ends), shape=(16, 16))
model = StructurePreservingEmbedding(tol=1e-4).fit(graph=graph)

# %%
places = model.embedding_
figure, axes = plt.subplots(figsize=(5, 4.4), layout="constrained")
for a, b in edges:
    axes.plot(*places[[a, b]].T, color="grey", linewidth=1, zorder=0)
axes.scatter(*places.T, s=120, color="#56B4E9", edgecolor="black")
for k, place in enumerate(places):
    axes.annotate(str(k), place, ha="center", va="center", fontsize=8)
axes.set(title="16 nodes from their edges alone", xticks=[], yticks=[], aspect="equal")

# %%
# Notice the two coordinates' share: the kernel itself has more dimensions, in which the order of distances holds.
print(
    f"largest violation {model.worst_violation_:.3f}, share of the kernel on the map {model.map_share_:.3f}, objective {model.objective_:.2f}"
)
