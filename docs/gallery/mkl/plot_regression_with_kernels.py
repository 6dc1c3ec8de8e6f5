"""
A trend and a season: learn a sum of kernels for a curve
========================================================

A curve of monthly counts has a slow trend and a yearly wave. Offer a few kernels for each and let the weights say which ones the data ask
for; the learnt sum then goes on into the future.
"""

# %%
# A made series of ten years; the last two are to be predicted. Column 0 is time in years, columns 1 and 2 go round once a year.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import MKLRegressor

rng = np.random.default_rng(0)
years = np.arange(120) / 12
truth = (
    20 + 0.35 * years**2 + 4 * np.sin(2 * np.pi * years) + 2 * np.cos(4 * np.pi * years)
)
y = truth + 1.2 * rng.standard_normal(120)
X = np.c_[years, np.sin(2 * np.pi * years), np.cos(2 * np.pi * years)]
kernels = [
    "linear[0]",
    "poly(degree=2)[0]",
    "rbf(gamma=0.05)[0]",
    "rbf(gamma=5)[0]",
    "linear[1:3]",
    "rbf(gamma=1)[1:3]",
    "rbf(gamma=10)[1:3]",
]
model = MKLRegressor(kernels, C=1, v=1.0, scale=None).fit(X[:96], y[:96])

# %%
figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 3.6), width_ratios=(2, 1), layout="constrained"
)
left.plot(years, y, ".", color="grey", label="counts")
left.plot(years, truth, ":", color="black", label="truth")
left.plot(years, model.predict(X), color="tab:blue", label="learnt sum of kernels")
left.axvspan(8, 10, color="tab:orange", alpha=0.15, label="not seen")
left.set(xlabel="year", ylabel="count", title="The learnt kernel goes on")
left.legend()
right.barh(kernels, model.kernel_weights_, color="tab:blue")
right.invert_yaxis()
right.set(xlabel="kernel weight")

# %%
# Notice the weights: the trend is a parabola, the season a smooth kernel of the year. The wriggly ``rbf(gamma=5)[0]`` has some weight, too:
# it follows single months, and its part dies away where there are no counts. A larger C would give it more:
for C in (0.1, 1, 10):
    other = MKLRegressor(kernels, C=C, v=1.0, scale=None).fit(X[:96], y[:96])
    print(
        f"C={C}: weight of the wriggly one {other.kernel_weights_[3]:.2f}, R2 on the years not seen {other.score(X[96:], y[96:]):.3f}"
    )
