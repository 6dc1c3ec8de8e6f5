"""
Run every night, and resume after a kill
========================================

A workflow file and one line of cron give new predictions and a report every
morning; a run that is killed resumes where it was. ``gramplane run`` executes
the steps that are not done.
"""

# %%
# Write the workflow
# ------------------
# ``${DAY}`` comes from the environment. A step is done if its inputs,
# parameters and outputs are unchanged.
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from gramplane import ingest, load_model
from gramplane.datasets import patients, sparse_linear

scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
patients().to_csv(folder / "patients.csv", folder / "new.csv")
workflow = """\
schema: gramplane.workflow/1
name: nightly
store: stores/patients
runs: runs
cluster: sync
steps:
  - id: data
    do: ingest
    with:
      source: patients.csv
      target: outcome
      id_column: patient
      drop: [admitted]
      categorical: [zip]
      missing: keep
  - id: check
    do: verify
    needs: [data]
  - id: rules
    do: fit
    needs: [data]
    with: {method: rule-ensemble, test_share: 0.25}
  - id: predict
    do: predict
    needs: [rules]
    with: {store: new.csv, out: "predictions-${DAY:-today}.csv"}
  - id: report
    do: report
    needs: [rules, check]
"""
(folder / "nightly.yaml").write_text(workflow, encoding="utf-8")


def gramplane(*words):
    """Run a command in the folder; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "gramplane.workflows.cli", *words],
        cwd=folder,
        env={**os.environ, "DAY": "2026-11-25"},
        capture_output=True,
        text=True,
    )
    output = done.stdout.replace(f"{folder}/", "")
    return f"$ gramplane {' '.join(words)}\n{output}exit {done.returncode}\n"


# %%
# Run it twice
# ------------
# The second time, only ``check`` does something: it reads the store again.
print(gramplane("run", "nightly.yaml"))
print(gramplane("run", "nightly.yaml"))

# %%
# The predictions of the day:
predictions = (folder / "predictions-2026-11-25.csv").read_text()
print(*predictions.splitlines()[:4], sep="\n")

# %%
# Schedule it
# -----------
# In cron, you need no lock: a second start while the first is running ends
# with exit code 99.
#
# .. code-block:: sh
#
#    */30 1-6 * * * cd /srv/jobs && DAY=$(date +\%F) gramplane run nightly.yaml
#
# In Airflow, a file in the folder ``dags`` makes each step a shell task:
#
# .. code-block:: python
#
#    from datetime import datetime
#
#    from gramplane.workflows.airflow_dag import build_dag
#
#    dag = build_dag(
#        "/srv/jobs/nightly.yaml",
#        schedule="@daily",
#        start_date=datetime(2026, 11, 1),
#        catchup=False,
#        run_id="{{ ds }}",
#    )
#
# Kill a run
# ----------
# A run writes a checkpoint after every round. ``kill()`` ends this fit after
# the sixth round, without any chance to save.
data = sparse_linear(n=3000, d=50_000, nnz=60, relevant=40, n_test=500)
ingest((data.X, data.y), folder / "wide")
options = ["--data", "wide", "--set", "B=10", "--set", "max_rounds=12"]
command = [sys.executable, "-m", "gramplane.workflows.cli", "fit", "fgm"]


def last_checkpoint(run):
    """Return the last round of a run that has a checkpoint."""
    files = (folder / run / "checkpoints").glob("*.json")
    return max((int(file.stem) for file in files), default=0)


process = subprocess.Popen(
    [*command, *options, "--run", "killed"],
    cwd=folder,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)
while last_checkpoint("killed") < 6 and process.poll() is None:
    time.sleep(0.005)
process.kill()
process.wait()
last = last_checkpoint("killed")
print(f"killed after round {last}")

# %%
# The same command resumes it. Beside it, a run that nothing interrupts:
gramplane("fit", "fgm", *options, "--run", "killed")
gramplane("fit", "fgm", *options, "--run", "undisturbed")
killed, other = (load_model(folder / run) for run in ("killed", "undisturbed"))
same = np.array_equal(killed.coef_.toarray(), other.coef_.toarray())
print(f"equal to the last bit: {'yes' if same else 'no'}")

# %%
figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.plot(
    other.history_["iteration"],
    other.history_["objective"],
    linewidth=6,
    color="#56B4E9",
    label="undisturbed",
)
axes.plot(
    killed.history_["iteration"],
    killed.history_["objective"],
    "o--",
    color="#D55E00",
    label="killed and resumed",
)
axes.axvline(last + 0.5, color="black", linestyle=":")
axes.text(last + 0.6, axes.get_ylim()[1] * 0.7, "killed here")
axes.set(xlabel="round", ylabel="objective", title="Both runs are the same")
axes.legend()

# %%
# A run may resume with more workers or memory, or on another computer with
# the same type of processor. From Python, call ``resume_run("runs/killed")``.
#
# What to try when it is bad
# --------------------------
# * **Exit 2**: fix the file or an option; ``gramplane run FILE --check`` names
#   the line. **3**: the data. **4**: the cluster was lost; start again. **5**:
#   disk or memory is full; make room and start again. **6**: a store is
#   damaged. **7**: a score does not meet its bound. **99**: another process
#   holds the run.
# * **Nothing happens with new data**: a source counts as new by its size and
#   time. To replace a store, set ``overwrite: true`` in its step.
# * **"of another configuration"**: the folder holds a run with other
#   parameters. Give another ``--run``.
# * **"the store was replaced"**: a run resumes only with the data it began
#   with. Start a new one.
# * **Which step is running?** Ask ``gramplane status runs/...`` in another
#   shell.
