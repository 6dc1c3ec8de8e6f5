"""
A run is killed, and goes on as if nothing had happened
=======================================================

Power fails, a job hits its time limit, somebody presses the wrong key. A run keeps a checkpoint after every round; started again, it goes on
from there, and ends at the same bits as a run that was left alone. This page kills one.
"""

# %%
# A fit of a few seconds, as a process of its own
# -----------------------------------------------
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from gramplane import ingest, load_model
from gramplane.datasets import sparse_linear

data = sparse_linear(n=3000, d=50_000, nnz=60, relevant=40, n_test=500)
scratch = tempfile.TemporaryDirectory()  # goes with the page
folder = Path(scratch.name)
ingest((data.X, data.y), folder / "store")
command = [
    sys.executable,
    "-m",
    "gramplane.workflows.cli",
    "fit",
    "fgm",
    "--data",
    "store",
    "--set",
    "B=10",
    "--set",
    "max_rounds=12",
    "--json",
]


def checkpoints(run):
    """Return the rounds whose checkpoints lie in a run's folder."""
    return sorted(
        int(path.stem) for path in (folder / run / "checkpoints").glob("*.json")
    )


# %%
# Start, wait for the sixth round, kill
# -------------------------------------
# ``kill()`` is SIGKILL: the process cannot say a last word.
process = subprocess.Popen(
    [*command, "--run", "killed"],
    cwd=folder,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)
while max(checkpoints("killed"), default=0) < 6 and process.poll() is None:
    time.sleep(0.005)
process.kill()
process.wait()
last = max(checkpoints("killed"))
print(f"killed; exit code {process.returncode}, checkpoint of round {last}")

# %%
# The same command again; and, beside it, a run that nobody disturbs.
for run in ("killed", "undisturbed"):
    subprocess.run(
        [*command, "--run", run], cwd=folder, capture_output=True, check=True
    )
one, other = (load_model(folder / run) for run in ("killed", "undisturbed"))
print(
    "the same coefficients, bit for bit:",
    np.array_equal(one.coef_.toarray(), other.coef_.toarray()),
)

# %%
# The histories of both:
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
for model, style, width, colour, name in (
    (other, "-", 6, "#56B4E9", "undisturbed"),
    (one, "o--", 1.5, "#D55E00", "killed, then started again"),
):
    axes.semilogy(
        model.history_["iteration"],
        model.history_["objective"],
        style,
        linewidth=width,
        color=colour,
        label=name,
    )
axes.axvline(last + 0.5, color="black", linestyle=":")
axes.text(last + 0.6, axes.get_ylim()[1] * 0.8, "killed here")
axes.set(xlabel="round", ylabel="objective", title="Nobody can tell afterwards")
axes.legend()

# %%
# From Python, ``resume_run("runs/killed")`` continues a run; the shell has ``gramplane resume RUN``. It may go on elsewhere: with more
# workers, with fewer, on another machine of the same type of processor, with more ``--driver-memory``.
#
# What to try when it is bad
# --------------------------
# * **"another process holds the run"** (exit 99): it is still running. The lock goes with the process, also when it is killed.
# * **"of another configuration"**: the folder holds a run with other parameters. Give another ``--run``.
# * **"the store was replaced"**: a run goes on with the data it began with, or not at all.
# * **The disk was full**: make room, and give the command again; the last good checkpoint is there.
# * **It should end earlier**: ``--set max_rounds=...`` is part of what a run is. Start another one.
