"""
Fifteen rows per task are enough, if tasks choose together
==========================================================

Twelve laboratories measure eight quantities on fifteen samples each. Alone, none can tell which quantities matter; together they choose,
while each keeps coefficients of its own.
"""

# %%
# Columns 2 and 5 matter everywhere, with other slopes in each laboratory.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import MKLRegressor, MultiTaskMKLRegressor

rng = np.random.default_rng(0)
slopes = 1.0 + 0.5 * rng.standard_normal((12, 2))


def draw(n):
    """Return n rows of every laboratory."""
    X, lab = rng.standard_normal((12 * n, 8)), np.repeat(np.arange(12), n)
    return (
        X,
        slopes[lab, 0] * X[:, 2]
        + slopes[lab, 1] * X[:, 5]
        + rng.standard_normal(12 * n),
        lab,
    )


kernels, (X_test, y_test, lab_test) = [f"linear[{j}]" for j in range(8)], draw(200)
sizes, together, alone = (8, 15, 30), [], []
for n in sizes:
    X, y, lab = draw(n)
    model = MultiTaskMKLRegressor(kernels, loss="squared", scale=None).fit(X, y, lab)
    together.append(model.score(X_test, y_test, lab_test))
    single = [
        MKLRegressor(kernels, v=1.0, scale=None)
        .fit(X[lab == t], y[lab == t])
        .predict(X_test[lab_test == t])
        for t in range(12)
    ]
    alone.append(1 - np.mean((np.concatenate(single) - y_test) ** 2) / y_test.var())

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
left.semilogx(sizes, together, "o-", color="tab:blue", label="tasks choose together")
left.semilogx(sizes, alone, "s--", color="tab:orange", label="each task alone")
left.set_xticks(sizes, [str(n) for n in sizes])
left.minorticks_off()
left.set(
    xlabel="rows per task",
    ylabel="R2 on 200 new rows per task",
    title="What it is worth",
)
left.legend()
right.bar(range(8), model.kernel_weights_, color="tab:blue")
right.set(
    xlabel="column",
    ylabel="common kernel weight",
    title="What was chosen, at 30 rows per task",
)

# %%
# Notice the left end: with few rows the common choice is worth the most; the more there are, the better each task chooses for itself.
for n, a, b in zip(sizes, together, alone, strict=True):
    print(f"{n:2d} rows per task: together {a:.3f}, alone {b:.3f}")
