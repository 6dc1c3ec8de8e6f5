"""
Text with a million columns, from disk
======================================

Text makes a column of every word, and of every phrase of two, three, four words: soon a million of them, nearly all of which are zero in
nearly all rows. Such a table never needs to be in memory: it is written to a store once, from where each pass reads what it needs.

The question of this page: which phrases tell documentation of SciPy from that of scikit-learn?
"""

# %%
# The text: what is installed anyway
# ----------------------------------
# Every docstring of the two packages, without the names of the libraries themselves, which would be too easy.
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
            else re.findall(r'"""(.*?)"""', file.read_text(encoding="utf-8"), re.DOTALL)
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
print(
    f"{counts.shape[0]:,} docstrings, {counts.shape[1]:,} words and phrases, {counts.nnz / np.prod(counts.shape):.5%} of the cells are not zero"
)

# %%
# From a text file to a store
# ---------------------------
# Usually such a table comes as a file in SVMlight form. ``ingest`` reads it in bounded memory and sorts it by columns; the second call takes
# labels, width and scaling of the first.
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
print(
    f"text {(folder / 'train.svm').stat().st_size / 1e6:.0f} MB, rows and columns {train.n_rows:,} x {train.n_cols:,}"
)

# %%
# The fit takes the path of the store. It selects three phrases a round.
model = FGMClassifier(B=3, max_rounds=8).fit(folder / "train")
print(
    f"{len(model.selected_)} of {counts.shape[1]:,} columns, test accuracy {model.score(folder / 'test', library[~is_train] == 'sklearn'):.3f}"
)

# %%
# What was found
# --------------
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
    xlabel="speaks for SciPy (left, blue) or scikit-learn (right, orange)",
    title=f"{len(order)} words and phrases of {counts.shape[1]:,}",
)

# %%
# Two libraries have two dialects, and a handful of turns of phrase gives them away.

# %%
# What to try when it is bad
# --------------------------
# * **Ingest refuses the file**: the message names line and column. SVMlight counts columns from one; ``zero_based="yes"`` says otherwise.
# * **The accuracy is low**: more columns (``B``, ``max_rounds``), then another ``C``. Long documents drown short ones without
#   ``scale="unit-row"``.
# * **The phrases are traps** (a name, a date): drop these columns, or look at :func:`~gramplane.selection_stability`.
# * **It takes too long**: ``cluster="local:4"`` runs the passes on four processes, to the same bits.
