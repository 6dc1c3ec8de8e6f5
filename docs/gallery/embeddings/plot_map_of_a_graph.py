"""
Draw a graph so that neighbours are near
========================================

Structure preserving embedding places the nodes of a graph so that linked nodes
are nearer than others. It needs only the edges.
"""

# %%
# A ring of twelve nodes with a tail and a bridge:
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
axes.set(
    title="16 nodes, placed by their edges",
    xticks=[],
    yticks=[],
    aspect="equal",
)

# %%
# The kernel has more dimensions than the two that are drawn:
print(f"share of the kernel that the map shows: {model.map_share_:.1%}")
print(f"largest violation of an order: {model.worst_violation_:.3f}")
