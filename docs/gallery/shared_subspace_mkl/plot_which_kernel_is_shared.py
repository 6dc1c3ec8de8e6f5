"""
Which kernel do tasks share a subspace of?
==========================================

Ten tasks see three views of the same rows. Only in one view do their answers lie in a common plane. ``q`` says how few views may be used:
at 1 as few as possible, at 2 all alike.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from gramplane import SharedSubspaceMKLRegressor

rng = np.random.default_rng(0)
views = {"sounds": slice(0, 10), "pictures": slice(10, 20), "words": slice(20, 30)}
weights = np.zeros((10, 30))
weights[:, views["pictures"]] = (
    2 * rng.standard_normal((10, 2)) @ np.linalg.qr(rng.standard_normal((10, 2)))[0].T
)
task, X = np.repeat(np.arange(10), 15), rng.standard_normal((150, 30))
y = (X * weights[task]).sum(axis=1) + rng.standard_normal(150)
kernels = [f"linear[{part.start}:{part.stop}]" for part in views.values()]
qs = (1.0, 1.25, 1.5, 2.0)
models = [
    SharedSubspaceMKLRegressor(kernels, q=q, C=10, loss="squared", scale=None).fit(
        X, y, task
    )
    for q in qs
]

# %%
X_new, task_new = rng.standard_normal((5000, 30)), np.repeat(np.arange(10), 500)
y_new = (X_new * weights[task_new]).sum(axis=1)
figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for k, (name, colour) in enumerate(
    zip(views, ("#999999", "#0072B2", "#E69F00"), strict=True)
):
    share = [m.kernel_weights_[k] / m.kernel_weights_.sum() for m in models]
    axes.bar(np.arange(4) + 0.27 * (k - 1), share, width=0.25, color=colour, label=name)
axes.set_xticks(
    range(4),
    [
        f"q = {q:g}\nR2 {m.score(X_new, y_new, task_new):.3f}"
        for q, m in zip(qs, models, strict=True)
    ],
)
axes.set(
    ylabel="share of the kernel weights",
    title="Views that are used, and R2 on new rows",
)
axes.legend()

# %%
# Notice how the weight of the two useless views grows with q, and what it costs.
for q, model in zip(qs, models, strict=True):
    print(
        f"q={q:g}: weights {np.round(model.kernel_weights_, 3).tolist()}, gap {model.dual_gap_ / model.objective_:.1e} of the objective"
    )
