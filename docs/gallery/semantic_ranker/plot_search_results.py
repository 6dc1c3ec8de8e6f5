"""
Put relevant images at the top of a search
==========================================

Looks and tags together rank images better than looks alone or the search
itself. More than half of the results of this search are wrong. Relevant images
look alike and share tags; the others differ from each other, too.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from gramplane import SemanticKernelRanker, VisualRank
from gramplane.datasets import planted_images

images = planted_images(160, share=0.4, seed=1)
looks = rbf_kernel(images.X, gamma=0.05)
orders = {
    "looks and tags": SemanticKernelRanker().fit(images.X, images.tags).rank(),
    "looks only (VisualRank)": VisualRank().fit(looks).rank(),
    "the search itself": np.argsort(-images.text_scores),
}

# %%
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
depth = np.arange(1, 81)
for (name, order), style, colour in zip(
    orders.items(),
    ("-", "--", ":"),
    ("#0072B2", "#D55E00", "black"),
    strict=True,
):
    axes.plot(
        depth,
        np.cumsum(images.relevant[order])[:80] / depth,
        style,
        color=colour,
        linewidth=2,
        label=name,
    )
axes.axhline(
    images.relevant.mean(), color="grey", linewidth=0.8, label="random order"
)
axes.set(
    xlabel="images from the top",
    ylabel="share that is relevant",
    title="160 images of one query",
    ylim=(0, 1.03),
)
axes.legend()

# %%
# Most people look at the first ten:
for name, order in orders.items():
    hits = np.cumsum(images.relevant[order])
    print(f"{name:24s} {hits[9]:2d} of 10 relevant, {hits[39]:2d} of 40")
