"""
Learn from rows that come one after another
===========================================

Rows arrive in portions and are forgotten once seen; still only a few groups of features shall have weights. Dual averaging keeps the
mean of all gradients and drops every group whose mean is small, so a group that only seemed to matter early on leaves again.
"""

# %%
# 6,000 rows in uneven portions; of 60 groups of five features two matter. After each portion: the test accuracy and the groups in use.
import matplotlib.pyplot as plt
import numpy as np

from gramplane import GroupLassoClassifier

rng = np.random.default_rng(0)
X, X_test = rng.standard_normal((6000, 300)), rng.standard_normal((2000, 300))
y, y_test = (
    np.where(part[:, 50:60].sum(axis=1) > 0, "ill", "well") for part in (X, X_test)
)
model = GroupLassoClassifier(lam=0.03, gamma=5.0, groups=np.arange(300) // 5)
seen, accuracy, n_groups = [], [], []
for rows in np.split(np.arange(6000), [20, 50, 100, 200, 400, 800, 1600, 3200]):
    model.partial_fit(X[rows], y[rows], classes=["ill", "well"])
    seen.append(rows[-1] + 1)
    accuracy.append(model.score(X_test, y_test))
    n_groups.append(len(model.active_groups_))

# %%
figure, (above, below) = plt.subplots(
    2, 1, figsize=(6.5, 4.6), sharex=True, layout="constrained"
)
above.semilogx(seen, accuracy, "o-", color="tab:blue")
above.set(ylabel="accuracy on\n2,000 test rows", title="One look at every row")
below.semilogx(seen, n_groups, "s-", color="tab:orange")
below.axhline(2, color="grey", linestyle=":", label="groups that matter")
below.set(xlabel="rows seen so far", ylabel="groups with weights")
below.legend()

# %%
# Notice that groups leave while accuracy rises. Other portions give the same bits:
again = GroupLassoClassifier(lam=0.03, gamma=5.0, groups=np.arange(300) // 5)
for rows in np.array_split(np.arange(6000), 7):
    again.partial_fit(X[rows], y[rows], classes=["ill", "well"])
print(
    "groups:",
    model.active_groups_.tolist(),
    " the same weights from seven portions:",
    np.array_equal(model.coef_, again.coef_),
)
