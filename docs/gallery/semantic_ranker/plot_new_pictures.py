"""
Score new images without tags
=============================

A fitted ranker scores new images of the same query by their looks, without a
new fit and without tags.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import RocCurveDisplay, roc_auc_score

from gramplane import SemanticKernelRanker
from gramplane.datasets import planted_images

images = planted_images(240, seed=3)
old, new = np.arange(140), np.arange(140, 240)
ranker = SemanticKernelRanker().fit(images.X[old], images.tags[old])
scores = ranker.score_samples(images.X[new])

# %%
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.6), layout="constrained"
)
bins = np.linspace(scores.min(), scores.max(), 16)
for is_relevant, colour, hatch, name in (
    (True, "#0072B2", "", "relevant"),
    (False, "#E69F00", "//", "other"),
):
    left.hist(
        scores[images.relevant[new] == is_relevant],
        bins,
        alpha=0.6,
        color=colour,
        hatch=hatch,
        label=name,
    )
left.set(xlabel="score", ylabel="new images", title="100 images without tags")
left.legend()
RocCurveDisplay.from_predictions(
    images.relevant[new], scores, ax=right, name="new images"
)
right.plot([0, 1], [0, 1], ":", color="grey")

# %%
# New images without tags are ranked as well as old ones with tags, because the
# tags have taught the kernel which looks matter.
with_tags = roc_auc_score(images.relevant[old], ranker.scores_)
print(f"area under the ROC curve, old images with tags: {with_tags:.3f}")
by_looks = roc_auc_score(images.relevant[new], scores)
print(f"area under the ROC curve, new images without: {by_looks:.3f}")
