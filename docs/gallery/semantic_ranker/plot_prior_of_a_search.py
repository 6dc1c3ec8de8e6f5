"""
How far to trust the search: damping
====================================

The walk follows similar pictures with probability ``damping`` and jumps back to the search's own ranking otherwise. At 0 it is the search,
near 1 the pictures alone decide.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from gramplane import SemanticKernelRanker
from gramplane.datasets import planted_images

dampings = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.97)
precision = np.zeros((5, len(dampings)))
for seed in range(5):
    images = planted_images(100, seed=seed)
    prior = images.text_scores - images.text_scores.min()
    for k, damping in enumerate(dampings):
        order = (
            SemanticKernelRanker(damping=damping)
            .fit(images.X, images.tags, prior)
            .rank(20)
        )
        precision[seed, k] = images.relevant[order].mean()

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.5), layout="constrained")
axes.plot(dampings, precision.T, color="#BBBBBB", linewidth=1)
axes.plot(
    dampings,
    precision.mean(axis=0),
    "o-",
    color="#0072B2",
    linewidth=2,
    label="mean of five queries",
)
axes.set(
    xlabel="damping",
    ylabel="right ones among the first 20",
    title="From the search's order to that of the pictures",
    ylim=(0, 1.03),
)
axes.legend(loc="lower right")

# %%
# Notice how flat the right half is: the exact value matters little.
print(dict(zip(dampings, np.round(precision.mean(axis=0), 2).tolist(), strict=True)))
