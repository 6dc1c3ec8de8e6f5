"""
Put the right pictures on top of a search
=========================================

A search for a word returns pictures, more than half of them wrong. Right ones look alike and share tags, wrong ones are wrong in many ways.
The learnt kernel joins looks and tags, and a walk on it finds the crowd.
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
    "looks alone (VisualRank)": VisualRank().fit(looks).rank(),
    "the search itself": np.argsort(-images.text_scores),
}

# %%
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
depth = np.arange(1, 81)
for (name, order), style, colour in zip(
    orders.items(), ("-", "--", ":"), ("#0072B2", "#D55E00", "black"), strict=True
):
    axes.plot(
        depth,
        np.cumsum(images.relevant[order])[:80] / depth,
        style,
        color=colour,
        linewidth=2,
        label=name,
    )
axes.axhline(images.relevant.mean(), color="grey", linewidth=0.8, label="in any order")
axes.set(
    xlabel="pictures looked at",
    ylabel="share of right ones",
    title="160 pictures of one query",
    ylim=(0, 1.03),
)
axes.legend()

# %%
# Notice the first ten, which is all that most people look at:
for name, order in orders.items():
    print(
        f"{name}: {images.relevant[order][:10].sum()} of the first ten are right, {images.relevant[order][:40].sum()} of the first forty"
    )
