"""
Every night: a workflow, cron and Airflow
=========================================

New data arrive every day, and in the morning there shall be predictions and a report. A workflow file says which steps there are and which
need which; ``gramplane run`` does those that are not done. cron or Airflow need nothing else.
"""

# %%
# The file
# --------
# ``${DAY}`` comes from the environment; a step is done when its inputs, parameters and outputs are unchanged.
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import yaml

from gramplane.datasets import patients

scratch = tempfile.TemporaryDirectory()  # goes with the page
folder = Path(scratch.name)
patients().to_csv(folder / "patients.csv", folder / "new.csv")
workflow = """\
schema: gramplane.workflow/1
name: nightly
store: stores/patients
runs: runs
cluster: sync
steps:
  - {id: data, do: ingest, with: {source: patients.csv, target: outcome, id_column: patient, drop: [admitted], missing: indicator}}
  - {id: check, do: verify, needs: [data]}
  - {id: select, do: fit, needs: [data], with: {method: fgm, B: 3, max_rounds: 3, test_share: 0.25}}
  - {id: predict, do: predict, needs: [select], with: {store: new.csv, out: "predictions-${DAY:-today}.csv"}}
  - {id: report, do: report, needs: [select, check]}
"""
(folder / "nightly.yaml").write_text(workflow, encoding="utf-8")


def gramplane(*words):
    """Run a command of gramplane in the folder; return its output and its seconds."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "gramplane.workflows.cli", *words]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "DAY": "2026-11-25"},
        capture_output=True,
        text=True,
    )
    return (
        f"$ gramplane {' '.join(words)}\n{done.stdout}exit {done.returncode}",
        time.perf_counter() - began,
    )


print(gramplane("run", "nightly.yaml", "--check")[0])

# %%
# The first night, and the second time it is started
# --------------------------------------------------
first, first_seconds = gramplane("run", "nightly.yaml", "--quiet")
again, again_seconds = gramplane("run", "nightly.yaml", "--quiet")
print(first, again, sep="\n\n")

# %%
# The same graph, as a scheduler draws it:
steps = yaml.safe_load(workflow)["steps"]
depth = {}
for step in steps:
    depth[step["id"]] = 1 + max(
        (depth[need] for need in step.get("needs", [])), default=-1
    )
places = {
    name: (d, -[n for n in depth if depth[n] == d].index(name))
    for name, d in depth.items()
}
figure, (left, right) = plt.subplots(
    1, 2, figsize=(10, 2.8), width_ratios=(3, 1), layout="constrained"
)
for step in steps:
    for need in step.get("needs", []):
        left.annotate(
            "",
            places[step["id"]],
            places[need],
            arrowprops={
                "arrowstyle": "->",
                "shrinkA": 28,
                "shrinkB": 32,
                "color": "grey",
            },
        )
for name, place in places.items():
    left.annotate(
        name,
        place,
        ha="center",
        va="center",
        bbox={"boxstyle": "round,pad=0.6", "facecolor": "#56B4E9", "alpha": 0.5},
    )
left.set(
    xlim=(-0.5, max(depth.values()) + 0.5),
    ylim=(-1.6, 0.6),
    title="Five steps and what they need",
)
left.axis("off")
bars = right.bar(
    ["first time", "again"],
    [first_seconds, again_seconds],
    color=["#0072B2", "#E69F00"],
)
right.bar_label(bars, [f"{s:.1f}" for s in (first_seconds, again_seconds)])
right.set(ylabel="seconds")

# %%
# The second start finds all steps done. Killed half way, it would do what is missing.
#
# In cron
# -------
# No lock is needed: a second start while the first still runs ends at once with exit code 99.
#
# .. code-block:: sh
#
#    */30 1-6 * * *  cd /srv/jobs && DAY=$(date +\%F) /opt/gramplane/bin/gramplane run nightly.yaml --json >>nightly.log 2>&1
#
# In Airflow
# ----------
# A file in Airflow's ``dags`` folder; each step becomes a shell task, so that Airflow itself needs no scientific package.
#
# .. code-block:: python
#
#    from datetime import datetime
#    from gramplane.workflows.airflow_dag import build_dag
#
#    dag = build_dag("/srv/jobs/nightly.yaml", schedule="@daily", start_date=datetime(2026, 11, 1), catchup=False, run_id="{{ ds }}")
#
# What to try when it is bad
# --------------------------
# * **Exit 2**: the file or an option; ``--check`` names line and column. **3**: the data. **4**: the cluster was lost, start again.
#   **5**: disk or memory is full. **6**: a store is damaged. **99**: another process is at it.
# * **Nothing happens with new data**: a source counts as new by its size and time. Into the same store it needs ``overwrite: true``.
# * **Which step is it at?** ``gramplane status runs/...`` from another shell.
