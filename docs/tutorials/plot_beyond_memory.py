"""
Sizes beyond memory: how blocks and budgets work
================================================

A table that does not fit memory is cut into blocks on disk, and each pass looks at one block after the other. Three numbers decide: the
budget of the ingest, the memory of the driver, and the memory of a worker. All three are promises that can be asked for beforehand.
"""

# %%
# A plan before any work
# ----------------------
# ``dry_run`` tells what an ingest will hold and write, and a fit what its driver holds, item by item. Nothing is computed.
import tempfile
import tracemalloc
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import dump_svmlight_file

from gramplane import FGMClassifier, ingest, run_method
from gramplane.datasets import sparse_linear

scratch = tempfile.TemporaryDirectory()  # goes with the page
folder = Path(scratch.name)
data = sparse_linear(n=20_000, d=200_000, nnz=120, relevant=50, n_test=1000)
dump_svmlight_file(data.X, data.y, str(folder / "table.svm"), zero_based=False)
MiB = 2**20
text = (folder / "table.svm").stat().st_size / MiB
print(
    f"text of {text:.0f} MiB: {data.X.shape[0]:,} rows, {data.X.shape[1]:,} columns, {data.X.nnz:,} entries"
)
plan = ingest(
    folder / "table.svm",
    folder / "store",
    budget=16 * MiB,
    n_features=200_000,
    dry_run=True,
)
print(
    f"ingest with a budget of 16 MiB will hold {plan['process_bytes'] / MiB:.1f} MiB at most; {plan['scratch_bytes_at_most'] / MiB:.0f} MiB of scratch"
)

# %%
# Ingest in less memory than the table has
# ----------------------------------------
# A budget is what the ingest may hold beyond the interpreter and its libraries (the first one loads some of these, and counts them).
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
print(
    "peaks of Python's memory by budget, MiB:",
    {budget: round(peak, 1) for budget, peak in peaks.items()},
)

# %%
# What a fit will hold
# --------------------
# The plan lists everything by name.
plan = run_method(
    "fgm",
    {"B": 10, "max_rounds": 5},
    data=str(folder / "store-16"),
    run=str(folder / "run"),
    dry_run=True,
).plan
print(
    f"driver {plan['driver_bytes'] / MiB:.1f} MiB, a task {plan['task_bytes'] / MiB:.1f} MiB"
)
for thing in plan["driver_holds"]:
    print(f"  {thing['what']}: {thing['bytes'] / MiB:.2f} MiB")

# %%
# The same result, whatever the budget
# ------------------------------------
# Blocks are a matter of storage. The fit of a store equals the fit of the array in memory.
stored = FGMClassifier(B=10, max_rounds=5).fit(folder / "store-16")
in_memory = FGMClassifier(B=10, max_rounds=5, scale=None).fit(data.X, data.y)
print("selected alike:", np.array_equal(stored.selected_, in_memory.selected_))
print("largest difference of a weight:", abs(stored.coef_ - in_memory.coef_).max())

# %%
sizes = {
    "the text": text,
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
    title="A table, and what is ever in memory of it",
    xlim=(0, 1.15 * max(sizes.values())),
)

# %%
# What does not fit is refused before it begins
# ---------------------------------------------
# A limit that is too small ends a run at once, and names what would help.
try:
    run_method(
        "fgm",
        {"B": 10, "max_rounds": 5},
        data=str(folder / "store-16"),
        run=str(folder / "small"),
        driver_memory="100KiB",
    )
except Exception as error:
    print(f"{type(error).__name__}: {error}")

# %%
# What to try when it is bad
# --------------------------
# * **Ingest is refused**: its message names the least budget that would do. One row of text must fit an eighth of it.
# * **The driver would hold too much**: ``--driver-memory`` raises the limit; ``--dry-run`` shows which entry is the large one.
# * **A task is too large for a worker**: blocks follow the budget of the ingest; a smaller one makes smaller blocks.
# * **Kernel methods**: ``grams="recompute"`` holds no matrix, ``grams="store"`` keeps them on disk.
# * **It is slow**: a store on a network drive is read in every pass. Copy it to a local disk.
