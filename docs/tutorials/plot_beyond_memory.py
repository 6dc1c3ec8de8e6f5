"""
Work with tables larger than memory
===================================

You set how much memory an ingest, the driver and the workers may use, and
gramplane tells you beforehand whether a table fits. It cuts the table into
blocks on disk and reads one block after the other.
"""

# %%
# Plan before any work
# --------------------
# ``dry_run`` returns what an ingest will hold in memory and write to disk.
# Nothing is computed.
import tempfile
import textwrap
import tracemalloc
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import dump_svmlight_file

from gramplane import FGMClassifier, ingest, run_method
from gramplane.datasets import sparse_linear

scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
data = sparse_linear(n=20_000, d=200_000, nnz=120, relevant=50, n_test=1000)
dump_svmlight_file(data.X, data.y, str(folder / "table.svm"), zero_based=False)
MiB = 2**20
text = (folder / "table.svm").stat().st_size / MiB
n_rows, n_columns = data.X.shape
print(f"file of {text:.0f} MiB: {n_rows:,} rows, {n_columns:,} columns")
plan = ingest(
    folder / "table.svm",
    folder / "store",
    budget=16 * MiB,
    n_features=200_000,
    dry_run=True,
)
memory, disk = plan["process_bytes"], plan["scratch_bytes_at_most"]
print("ingest with a budget of 16 MiB:")
print(f"  memory  at most {memory / MiB:3.0f} MiB")
print(f"  disk    at most {disk / MiB:3.0f} MiB of temporary files")

# %%
# Ingest in less memory than the table takes
# ------------------------------------------
# A budget is the memory that the ingest may use beyond the interpreter and its
# libraries.
peaks = {}
for budget in (64, 32, 16):
    tracemalloc.start()
    ingest(
        folder / "table.svm",
        folder / f"store-{budget}",
        budget=budget * MiB,
        n_features=200_000,
    )
    peaks[budget] = tracemalloc.get_traced_memory()[1] / MiB
    tracemalloc.stop()
for budget, peak in peaks.items():
    print(f"budget {budget} MiB: peak of Python's memory {peak:4.1f} MiB")

# %%
# Ask what a fit will need
# ------------------------
# The plan lists each item by name.
plan = run_method(
    "fgm",
    {"B": 10, "max_rounds": 5},
    data=str(folder / "store-16"),
    run=str(folder / "run"),
    dry_run=True,
).plan
driver, task = plan["driver_bytes"], plan["task_bytes"]
print(f"a task {task / MiB:.1f} MiB, the driver {driver / MiB:.1f} MiB:")
for thing in plan["driver_holds"]:
    print(f"  {thing['bytes'] / MiB:5.2f} MiB  {thing['what']}")

# %%
# Get the same result with any budget
# -----------------------------------
# Blocks change how a table is stored, not the result. The fit of the store
# equals the fit of the array in memory:
stored = FGMClassifier(B=10, max_rounds=5).fit(folder / "store-16")
in_memory = FGMClassifier(B=10, max_rounds=5).fit(data.X, data.y)
same = np.array_equal(stored.selected_, in_memory.selected_)
print(f"the same features: {'yes' if same else 'no'}")
difference = abs(stored.coef_ - in_memory.coef_).max()
print(f"largest difference of a weight: {difference:g}")

# %%
# The table, and what is in memory of it at any time:
sizes = {
    "the file": text,
    **{f"ingest, budget {b} MiB": peak for b, peak in peaks.items()},
}
sizes["fit: driver, planned"] = plan["driver_bytes"] / MiB
sizes["fit: a task, planned"] = plan["task_bytes"] / MiB
figure, axes = plt.subplots(figsize=(7.5, 3.2), layout="constrained")
bars = axes.barh(
    list(sizes),
    list(sizes.values()),
    color=["#999999", "#56B4E9", "#56B4E9", "#56B4E9", "#0072B2", "#0072B2"],
)
axes.bar_label(bars, [f"{size:.1f}" for size in sizes.values()], padding=3)
axes.invert_yaxis()
axes.set(
    xlabel="MiB",
    title="The file, and the memory it needs",
    xlim=(0, 1.15 * max(sizes.values())),
)

# %%
# See what happens when memory is short
# -------------------------------------
# A limit that is too small stops the run before it begins, and the error says
# what would help:
try:
    run_method(
        "fgm",
        {"B": 10, "max_rounds": 5},
        data=str(folder / "store-16"),
        run=str(folder / "small"),
        driver_memory="100KiB",
    )
except Exception as error:
    print(textwrap.fill(f"{type(error).__name__}: {error}", 79))

# %%
# What to try when it is bad
# --------------------------
# * **The ingest is rejected**: the error names the smallest budget that works.
#   A line of text must fit into an eighth of the budget.
# * **The driver needs too much**: raise ``--driver-memory``; ``--dry-run``
#   shows which item is large.
# * **A task is too large for a worker**: blocks follow the budget of the
#   ingest. A smaller budget makes smaller blocks.
# * **Kernel methods**: ``grams="recompute"`` keeps no kernel matrix,
#   ``grams="store"`` keeps them on disk.
# * **It is slow**: each pass reads the store. Copy it from a network drive to
#   a local disk.
