"""
Unlabelled rows that belong to neither class
============================================

Rows that were collected in passing often show something else altogether. The tri-class machine may call an unlabelled row *neither*: such
rows should lie near the boundary, where they speak for no side. A machine that takes all of them for members of a class is led astray.
"""

# %%
# Twenty-four labelled pictures of 4 and 9; the 136 unlabelled ones show all *other* digits, which nobody tells the machine.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.svm import SVC

from gramplane import TriClassSVC

images, digits = load_digits(return_X_y=True)
some = {
    d: np.random.default_rng(d).permutation(np.flatnonzero(digits == d))
    for d in range(10)
}
labelled, test = (
    np.concatenate([some[4][part], some[9][part]])
    for part in (slice(12), slice(80, None))
)
strange = np.concatenate([some[d][:17] for d in range(10) if d not in (4, 9)])
machines = {
    "labelled rows alone": SVC().fit(images[labelled], digits[labelled]),
    "all belong to a class": TriClassSVC(
        C_unlabelled=0.3, all_relevant=True, validation=0
    ),
    "some may be neither": TriClassSVC(C_unlabelled=0.3, validation=0),
}
for name in ("all belong to a class", "some may be neither"):
    machines[name].fit(images[labelled], digits[labelled], images[strange])

# %%
figure, axes = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
for k, machine in enumerate(machines.values()):
    values, height = (
        machine.decision_function(images[strange]),
        k + np.random.default_rng(0).uniform(-0.25, 0.25, strange.size),
    )
    axes.scatter(
        values,
        height,
        s=10,
        c="grey",
        label="unlabelled: other digits" if k == 0 else None,
    )
    axes.text(
        2.2,
        k,
        f"test accuracy\n{machine.score(images[test], digits[test]):.3f}",
        va="center",
    )
axes.axvline(0, color="black", linewidth=0.8)
axes.set(
    xlabel="decision value (left: 4, right: 9)",
    title="Where pictures end up that are neither",
    xlim=(-2, 3.2),
)
axes.set_yticks(range(3), list(machines))
axes.legend(loc="upper left")

# %%
# Notice the middle row: every stranger is pushed to a side, and the boundary pays for it. Below, strangers may stay near zero.
called = machines["some may be neither"].assignment_
print(
    f"called neither: {np.sum(called == 0)} of {strange.size}, though the machine was never shown what neither looks like"
)
