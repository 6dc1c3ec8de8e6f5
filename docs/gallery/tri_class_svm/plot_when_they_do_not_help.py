"""
Ask whether unlabelled rows help at all
=======================================

More data without labels can hurt, and with few labels nobody sees it. With ``validation`` the fit sets machines side by side on labelled
rows held out: one that ignores the unlabelled rows (SVM), one that takes all of them for irrelevant (U-SVM), and its own (3C-SVM).
"""

# %%
# Once two moons, where unlabelled rows show the gap; once pictures of 3 and 8, where there is none to be seen.
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, make_moons

from gramplane import TriClassSVC

images, digits = load_digits(return_X_y=True)
pair = np.isin(digits, [3, 8])
cases = {
    "moons": (make_moons(600, noise=0.15, random_state=1), 0.5),
    "3 and 8": ((images[pair], digits[pair]), 0.5),
}
tables, said = {}, {}
for name, ((X, y), weight) in cases.items():
    order = np.random.default_rng(1).permutation(len(y))
    labelled, loose, test = order[:24], order[24:180], order[180:]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = TriClassSVC(C=10, C_unlabelled=weight, validation=8).fit(
            X[labelled], y[labelled], X[loose]
        )
    plain = TriClassSVC(C=10).fit(X[labelled], y[labelled])
    tables[name] = model.validation_
    said[name] = [str(item.message) for item in caught]
    print(
        f"{name}: test accuracy {model.score(X[test], y[test]):.3f}, without unlabelled rows {plain.score(X[test], y[test]):.3f}"
    )

# %%
figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
for k, (name, table) in enumerate(tables.items()):
    x = np.arange(len(table)) + 0.1 * (2 * k - 1)
    errors = [row["deviation"] / np.sqrt(8) for row in table]
    axes.errorbar(
        x,
        [row["accuracy"] for row in table],
        errors,
        fmt="os"[k],
        capsize=3,
        color=("#0072B2", "#D55E00")[k],
        label=name,
    )
axes.set_xticks(range(len(table)), [row["machine"] for row in table])
axes.set(
    ylabel="accuracy on rows held out",
    title="Folds of the 24 labelled rows (bars: standard error)",
)
axes.legend()

# %%
# Notice the bars: twenty-four labels tell machines apart only roughly. Where another machine is better by more than the standard error,
# the fit warns; here it could not tell:
for name, messages in said.items():
    print(f"{name}: {messages or 'no warning'}")
