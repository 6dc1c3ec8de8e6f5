"""Whole ways through the command line, as they are typed: a mixed table of patients, and four real sets."""

from __future__ import annotations

import csv
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from gramplane import load_model
from gramplane.datasets import patients
from gramplane.storage import BlockStore
from tests.workflows.pages import shell

JOURNEYS = {
    "patients": r"""
python -c "from gramplane.datasets import patients; patients().to_csv('patients.csv', 'others.csv')"
sed -i -E '5s/east|north|south/west/; 9s/east|north|south/west/' others.csv
head -3 patients.csv
gramplane ingest patients.csv stores/patients --target outcome --id-column patient --categorical zip --drop admitted --missing indicator
gramplane inspect stores/patients
gramplane ingest others.csv stores/others --like stores/patients
gramplane tune fgm --data stores/patients --run runs/patients --grid C=0.01,0.1,1 --folds 5 \
    --set B=3 --set max_rounds=4 --set probability=sigmoid
gramplane score runs/patients stores/others
gramplane predict runs/patients stores/others predictions.csv
head -3 predictions.csv
gramplane report runs/patients
gramplane predict runs/patients others.csv again.csv
cmp predictions.csv again.csv
gramplane ingest patients.csv stores/kept --target outcome --id-column patient --categorical zip --drop admitted --missing keep
gramplane fit rule-ensemble --data stores/kept --run runs/rules --set C=3
gramplane score runs/rules others.csv
gramplane report runs/patients runs/rules --out compared
""",
    "leukemia": r"""
gramplane ingest "$GRAMPLANE_DATA/leukemia_allaml.npz" stores/leukemia --scale standard
gramplane fit fgm --data stores/leukemia --run runs/leukemia --set B=5 --set max_rounds=4 --test-share 0.3
gramplane score runs/leukemia stores/leukemia
gramplane stability runs/leukemia --resamples 10
gramplane report runs/leukemia
""",
    "titanic": r"""
printf 'class\nage\nsex\n' > names.txt
gramplane ingest "$GRAMPLANE_DATA/titanic.npz" stores/titanic --names names.txt
gramplane fit rule-ensemble --data stores/titanic --run runs/titanic --set C=1 --test-share 0.3
gramplane score runs/titanic stores/titanic
gramplane report runs/titanic
""",
    "school": r"""
gramplane ingest "$GRAMPLANE_DATA/school.npz" stores/school --task-column task --task regression --scale standard
gramplane fit multitask-selector --data stores/school --run runs/school --test-share 0.2
gramplane score runs/school stores/school
gramplane report runs/school
""",
    "pcmac": r"""
gramplane ingest "$GRAMPLANE_DATA/pcmac.npz" stores/counts
gramplane fit fgm --data stores/counts --run runs/counts --test-share 0.3
gramplane ingest "$GRAMPLANE_DATA/pcmac.npz" stores/pcmac --scale unit-row
gramplane fit fgm --data stores/pcmac --run runs/pcmac --set B=20 --test-share 0.3
gramplane score runs/pcmac stores/pcmac
gramplane tune fgm --data stores/pcmac --run runs/tuned --grid B=10,40 --folds 3
gramplane report runs/pcmac
""",
}


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """The folder in which the commands ran, one after the other in one shell, and what they wrote."""
    folder = tmp_path_factory.mktemp("journey")
    script = "set -e\n" + JOURNEYS["patients"]
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=shell(folder), capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder, done.stdout, done.stderr


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_predictions_have_ids_and_are_worth_something(walked):
    folder, _, _ = walked
    rows, truth = table(folder / "predictions.csv"), table(folder / "others.csv")
    assert list(rows[0]) == ["id", "prediction", "decision", "probability[ill]", "probability[well]"]
    assert [row["id"] for row in rows] == [row["patient"] for row in truth]
    right = np.mean([row["prediction"] == other["outcome"] for row, other in zip(rows, truth, strict=True)])
    majority = max(np.mean([row["outcome"] == label for row in truth]) for label in ("ill", "well"))
    assert right > majority + 0.05
    assert all((float(row["decision"]) > 0) == (row["prediction"] == "well") for row in rows)
    chances = np.array([[float(row[f"probability[{label}]"]) for label in ("ill", "well")] for row in rows])
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, rtol=1e-12)
    assert (np.diff(chances[np.argsort([float(row["decision"]) for row in rows]), 1]) >= 0).all()


@pytest.mark.slow
def test_the_encoding_is_shown_and_followed(walked):
    folder, out, err = walked
    assert re.search(r"^smoker +nominal; no, yes; missing: indicator$", out, re.MULTILINE)
    assert re.search(r"^admitted +dropped$", out, re.MULTILINE) and re.search(r"^zip +nominal; 01067, 10115, 80331;", out, re.MULTILINE)
    assert "column 'ward' has 2 values of levels that were not there at fit: 'west' (2)" in err
    train, test = (BlockStore.open(folder / "stores" / name) for name in ("patients", "others"))
    assert train.encoding == test.encoding and "age is missing" in train.feature_names() and "smoker=yes" in test.feature_names()


@pytest.mark.slow
def test_reports_and_rules_speak_of_the_columns(walked):
    folder, _, _ = walked
    page = (folder / "runs" / "patients" / "report.html").read_text(encoding="utf-8")
    assert "smoker=" in page and (folder / "compared" / "report.html").exists()
    rules = [rule["text"] for rule in load_model(folder / "runs" / "rules").rules_]
    assert any("smoker = yes" in text and "age >" in text for text in rules), rules
    assert not any("!= 1" in text or "<= 0.5" in text for text in rules)


@pytest.mark.slow
def test_loaded_models_take_frames_of_the_source(walked):
    pandas = pytest.importorskip("pandas")
    folder, _, _ = walked
    frame, stored = pandas.DataFrame(patients().test), table(folder / "predictions.csv")
    frame.loc[[3, 7], "ward"] = "west"
    frame["age"], frame["pressure"] = frame["age"].astype("Int64"), frame["pressure"].astype(float)
    with pytest.warns(UserWarning, match=r"column 'ward' has 2 values .* 'west' \(2\)"):
        values = load_model(folder / "runs" / "patients").decision_function(frame.sample(frac=1, random_state=0).sort_index(axis=1))
    order = frame.sample(frac=1, random_state=0).index
    np.testing.assert_allclose(values, np.array([float(row["decision"]) for row in stored])[order], rtol=1e-6, atol=1e-9)
    with pytest.warns(UserWarning, match="every comparison with them is false"):
        load_model(folder / "runs" / "rules").predict(frame)
    with pytest.raises(ValueError, match="the frame lacks column 'smoker' of the training data"):
        load_model(folder / "runs" / "patients").predict(frame.drop(columns="smoker"))


@pytest.mark.slow
@pytest.mark.skipif("GRAMPLANE_DATA" not in os.environ, reason="GRAMPLANE_DATA names no folder")
@pytest.mark.parametrize(
    ("name", "said"),
    [("leukemia", "and 8 more"), ("titanic", "all rules"), ("school", "all features"), ("pcmac", "and 165 more")],
)
def test_journeys_of_a_newcomer(name: str, said: str, tmp_path: Path):
    script = "set -e\n" + JOURNEYS[name]
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=shell(tmp_path), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    assert said in done.stdout and (tmp_path / "runs" / name / "report.html").exists()
