"""
From a CSV file to a report
===========================

A table as it comes out of a hospital: ids, numbers with holes, names, truth values, a date. This page goes the whole way, from the file to
predictions for new patients and a report. Every step is a function here and a command of the shell alike; the commands stand beside.
"""

# %%
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from gramplane import ingest, load_model, predict_store, run_method, score_store, tune
from gramplane.datasets import patients
from gramplane.plots import RulesDisplay, WeightsDisplay

scratch = tempfile.TemporaryDirectory()  # goes with the page
folder = Path(scratch.name)
patients().to_csv(folder / "patients.csv", folder / "others.csv")
print((folder / "patients.csv").read_text(encoding="utf-8")[:230])

# %%
# Read the table
# --------------
# Zip codes look like numbers, and are names. Days of admission are no features by themselves, so they are left out. Where a value is missing,
# ``indicator`` fills in the mean and adds a column that says so.
#
# .. code-block:: sh
#
#    gramplane ingest patients.csv stores/patients --target outcome --id-column patient \
#        --categorical zip --drop admitted --missing indicator
#    gramplane ingest others.csv stores/others --like stores/patients
roles = {
    "target": "outcome",
    "id_column": "patient",
    "categorical": ["zip"],
    "drop": ["admitted"],
}
store = ingest(folder / "patients.csv", folder / "train", missing="indicator", **roles)
print("features:", ", ".join(store.feature_names()))

# %%
# The other file follows the first one: columns by name, levels and means of the training patients. It says what it did not know.
others = ingest(folder / "others.csv", folder / "others", like=store.url)

# %%
# Fit, choosing by cross-validation
# ---------------------------------
#
# .. code-block:: sh
#
#    gramplane tune fgm --data stores/patients --run runs/weights --grid C=0.1,1 --folds 4 --set B=3 --set max_rounds=3
#    gramplane score runs/weights stores/others
#    gramplane predict runs/weights stores/others predictions.csv
grid, fixed = {"C": [0.1, 1.0]}, {"B": 3, "max_rounds": 3}
outcome = tune(
    "fgm",
    grid,
    data=str(folder / "train"),
    run=str(folder / "weights"),
    params=fixed,
    folds=4,
)
scored = score_store(str(folder / "weights"), str(folder / "others"))
predict_store(
    str(folder / "weights"), str(folder / "others"), str(folder / "predictions.csv")
)
print(
    "\n".join((folder / "predictions.csv").read_text(encoding="utf-8").splitlines()[:4])
)

# %%
# Rules beside the linear machine
# -------------------------------
# A sum of weights cannot say "over 60 *and* smokes". Rules can; they take holes and names as they are.
#
# .. code-block:: sh
#
#    gramplane ingest patients.csv stores/kept --target outcome --id-column patient --categorical zip --drop admitted --missing keep
#    gramplane fit rule-ensemble --data stores/kept --run runs/rules --set C=3
#    gramplane score runs/rules others.csv
#    gramplane report runs/weights runs/rules --out compared
ingest(folder / "patients.csv", folder / "kept", missing="keep", **roles)
run_method(
    "rule-ensemble", {"C": 3.0}, data=str(folder / "kept"), run=str(folder / "rules")
)
by_rules = score_store(str(folder / "rules"), str(folder / "others.csv"))
report = [
    sys.executable,
    "-m",
    "gramplane.workflows.cli",
    "report",
    "weights",
    "rules",
    "--out",
    "compared",
    "--quiet",
]
print(
    subprocess.run(
        report, cwd=folder, capture_output=True, text=True, check=True
    ).stdout
)

# %%
# The report is one page, with tables beside it. Its figures can be had here, too:
WeightsDisplay.from_run(folder / "weights" / "best")
RulesDisplay.from_run(folder / "rules")

# %%
# Who is right about new patients?
# --------------------------------
with (folder / "others.csv").open(encoding="utf-8", newline="") as file:
    truth = [row["outcome"] for row in csv.DictReader(file)]
with (folder / "predictions.csv").open(encoding="utf-8", newline="") as file:
    said = [row["prediction"] for row in csv.DictReader(file)]
shares = {
    "always the commonest": max(
        np.mean([t == label for t in truth]) for label in set(truth)
    ),
    "weights": np.mean([a == b for a, b in zip(said, truth, strict=True)]),
    "rules": by_rules["accuracy"],
}
figure, axes = plt.subplots(figsize=(6, 2.4), layout="constrained")
bars = axes.barh(
    list(shares), list(shares.values()), color=["#999999", "#0072B2", "#E69F00"]
)
axes.bar_label(bars, [f"{share:.3f}" for share in shares.values()], padding=3)
axes.set(
    xlim=(0, 1),
    xlabel="right about 200 new patients",
    title="The same table, two ways of seeing it",
)

# %%
# The planted rule says who is ill: over 60 and a smoker, or a pressure above 150 in ward east. The rules found:
for rule in load_model(folder / "rules").rules_:
    print(
        f"IF {rule['text']} THEN {rule['vote']} (weight {rule['weight']:.2f}, {rule['support']} patients)"
    )

# %%
# What to try when it is bad
# --------------------------
# * **A column is refused**: the message says why. Dates become numbers first; a column with a name per row is an id (``--id-column``).
# * **New levels are warned of**: the other file has a ward that was not there at the fit. It counts as none of the known ones.
# * **Half of a rule is missing**, as here that of the pressure: a larger ``C`` (``--set C=30``) buys more and longer rules.
# * **No better than the commonest**: classes may be unbalanced; ``--set class_weight=balanced``, and look at precision and recall.
