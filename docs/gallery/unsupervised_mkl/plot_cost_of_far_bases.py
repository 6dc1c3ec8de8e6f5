"""
Local or smooth: the price of far neighbours
============================================

``gamma1`` is the price of rebuilding a sample from others far away. Without it wide kernels win, which reach across to the other moon;
with a price a narrower one is left, which looks next door.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from gramplane import UnsupervisedMKL

X, moon = make_moons(300, noise=0.07, random_state=0)
widths = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
prices = (0.0, 0.003, 0.01, 0.03, 0.1, 1.0)
models = [
    UnsupervisedMKL(
        [f"rbf(gamma={1 / (2 * w * w)})" for w in widths],
        gamma1=price,
        normalize="column_sum",
    ).fit(X)
    for price in prices
]

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
weights = np.array([model.kernel_weights_ for model in models])
bottom = np.zeros(len(prices))
for k, width in enumerate(widths):
    axes.bar(
        range(len(prices)),
        weights[:, k],
        bottom=bottom,
        color=plt.get_cmap("viridis")(k / 5),
        label=f"{width}",
    )
    bottom += weights[:, k]
axes.set_xticks(range(len(prices)), [str(price) for price in prices])
axes.set(xlabel="gamma1", ylabel="kernel weight", title="Which widths share the weight")
axes.legend(title="width", loc="upper left", bbox_to_anchor=(1, 1))

# %%
# Notice how the mixture changes with the price. How far away are the bases that were taken?
for price, model in zip(prices, models, strict=True):
    distance = np.linalg.norm(X[model.bases_] - X[:, None], axis=2).mean()
    print(
        f"gamma1={price}: mean distance of bases {distance:.3f}, of the same moon {np.mean(moon[model.bases_] == moon[:, None]):.3f}"
    )
