"""
Score pictures that came later
==============================

New pictures of the same query arrive without tags. They are scored by the learnt kernel without a new fit, on the scale of the old ones.
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
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
bins = np.linspace(scores.min(), scores.max(), 16)
for is_right, colour, hatch, name in (
    (True, "#0072B2", "", "right"),
    (False, "#E69F00", "//", "wrong"),
):
    left.hist(
        scores[images.relevant[new] == is_right],
        bins,
        alpha=0.6,
        color=colour,
        hatch=hatch,
        label=name,
    )
left.set(xlabel="score", ylabel="new pictures", title="100 pictures without tags")
left.legend()
RocCurveDisplay.from_predictions(
    images.relevant[new], scores, ax=right, name="new, looks only"
)
right.plot([0, 1], [0, 1], ":", color="grey")

# %%
# Notice that new pictures without tags are ordered about as well as old ones: the tags have taught which looks matter.
print(
    f"area under the curve: old pictures, with tags {roc_auc_score(images.relevant[old], ranker.scores_):.3f};",
    end=" ",
)
print(f"new ones, by looks {roc_auc_score(images.relevant[new], scores):.3f}")
