"""
Select words and phrases of a million
=====================================

From a million words and phrases, 24 are enough to predict which of two
libraries a text documents. A table of this width need not be in memory: a
store on disk holds it, and each pass reads what it needs.
"""

# %%
# Make a table from text
# ----------------------
# The text is on your computer already: every docstring of SciPy and
# scikit-learn, without the names of the libraries.
import re
import tempfile
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import dump_svmlight_file
from sklearn.feature_extraction.text import CountVectorizer

from gramplane import FGMClassifier, ingest

texts, library = [], []
for name in ("scipy", "sklearn"):
    for file in sorted(Path(find_spec(name).origin).parent.rglob("*.py")):
        found = (
            []
            if "tests" in file.parts
            else re.findall(
                r'"""(.*?)"""', file.read_text(encoding="utf-8"), re.DOTALL
            )
        )
        texts += [
            re.sub(r"scipy|sklearn|scikit|learn|numpy", "", text[:2900])
            for text in found
            if len(text) > 300
        ]
        library += [name] * (len(texts) - len(library))
library = np.array(library)
words = CountVectorizer(ngram_range=(1, 4), binary=True, dtype=np.float32)
counts = words.fit_transform(texts)
n_rows, n_columns = counts.shape
print(f"{n_rows:,} docstrings, {n_columns:,} words and phrases")
print(f"{counts.nnz / n_rows / n_columns:.3%} of the cells are not zero")

# %%
# From a text file to a store
# ---------------------------
# Such tables often come as SVMlight files. ``ingest`` reads a file in bounded
# memory and sorts it by columns. The test file takes the width and scale of
# the training store (``like=``).
scratch = tempfile.TemporaryDirectory()  # goes with the page
folder = Path(scratch.name)
is_train = np.random.default_rng(0).random(len(texts)) < 0.7
for part, rows in (("train", is_train), ("test", ~is_train)):
    dump_svmlight_file(
        counts[rows],
        library[rows] == "sklearn",
        str(folder / f"{part}.svm"),
        zero_based=False,
    )
train = ingest(
    folder / "train.svm",
    folder / "train",
    n_features=counts.shape[1],
    scale="unit-row",
    budget=2**28,
)
test = ingest(folder / "test.svm", folder / "test", like=train.url)
size = (folder / "train.svm").stat().st_size / 1e6
print(f"file of {size:.0f} MB, {train.n_rows:,} rows", end=" ")
print(f"and {train.n_cols:,} columns")

# %%
# Fit on the path of the store, with three phrases a round:
model = FGMClassifier(B=3, max_rounds=8).fit(folder / "train")
truth = library[~is_train] == "sklearn"
accuracy = model.score(folder / "test", truth)
majority = max(np.mean(truth), np.mean(~truth))
print(f"{len(model.selected_)} columns, test accuracy {accuracy:.3f}")
print(f"accuracy of the most frequent class: {majority:.3f}")

# %%
# What was found
# --------------
# A bar to the left speaks for SciPy, one to the right for scikit-learn:
phrases = words.get_feature_names_out()[model.selected_]
weights = model.coef_[[0]].toarray().ravel()[model.selected_]
order = np.argsort(weights)
figure, axes = plt.subplots(figsize=(7.5, 5), layout="constrained")
colours = np.where(weights[order] > 0, "#E69F00", "#0072B2")
axes.barh(range(len(order)), weights[order], color=colours)
axes.set_yticks(
    range(len(order)), [f"“{phrase}”" for phrase in phrases[order]], fontsize=8
)
axes.axvline(0, color="black", linewidth=0.8)
axes.set(
    xlabel="weight: SciPy (left) or scikit-learn (right)",
    title=f"{len(order)} of {n_columns:,} words and phrases",
)

# %%
# The two libraries differ in their turns of phrase.
#
# What to try when it is bad
# --------------------------
# * **Ingest rejects the file**: the message names line and column. SVMlight
#   files usually count columns from one; set ``zero_based="yes"`` if yours
#   counts from zero.
# * **The accuracy is low**: select more columns (``B``, ``max_rounds``), then
#   search for ``C``. Use ``scale="unit-row"``, so that long documents do not
#   outweigh short ones.
# * **A phrase is a leak** (a name, a date): drop its column, or check it with
#   :func:`~gramplane.selection_stability`.
# * **It takes too long**: ``cluster="local:4"`` runs the passes on four
#   processes, with the same result.
