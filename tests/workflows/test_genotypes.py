"""Genotypes from the command line: what is known of the variants stands in tables and reports; further files are read by the run."""

import csv

import numpy as np

from gramplane.storage import RunStore
from gramplane.workflows.cli import main
from tests.storage.ingest.genotype_files import MISSING, draw_genotypes, write_bed


def test_from_files_to_a_report(tmp_path, capsys):
    G = draw_genotypes(300, 30)
    copies = np.where(G == MISSING, 0, G)[:, [4, 9]].sum(axis=1)
    cases = 1 + (copies > np.median(copies))
    path = write_bed(tmp_path / "cohort.bed", G[:200], cases[:200])
    (tmp_path / "extract.txt").write_text("".join(f"rs{j}\n" for j in range(2, 30)))
    store, run = str(tmp_path / "store"), str(tmp_path / "run")
    assert main(["ingest", str(path), store, "--extract", str(tmp_path / "extract.txt")]) == 0
    assert main(["fit", "fgm", "--data", store, "--run", run, "--set", "B=2", "--set", "max_rounds=1"]) == 0
    rows = (RunStore.open(run).read_json("tables") or {})["selected"]
    assert {row["feature"] for row in rows} == {"rs4", "rs9"}
    row = next(row for row in rows if row["feature"] == "rs4")
    there = G[:200, 4][G[:200, 4] != MISSING]
    assert list(row)[:6] == ["feature", "chromosome", "position", "counted allele", "other allele", "frequency"]
    assert list(row.values())[1:6] == ["3", 407, "A", "G", there.mean() / 2]
    later = write_bed(tmp_path / "later.bed", G[200:], cases[200:])
    out = tmp_path / "predictions.csv"
    assert main(["predict", run, str(later), str(out)]) == 0
    assert main(["score", run, str(later)]) == 0
    with out.open(newline="") as file:
        predicted = list(csv.DictReader(file))
    assert [row["id"] for row in predicted[:2]] == ["F0 I0", "F0 I1"]
    assert np.mean([int(row["prediction"]) for row in predicted] == cases[200:]) > 0.8
    assert main(["report", run, "--out", str(tmp_path / "report")]) == 0
    assert "counted allele" in (tmp_path / "report" / "report.html").read_text()
    with (tmp_path / "report" / "selected.csv").open(newline="") as file:
        assert {row["position"] for row in csv.DictReader(file)} == {"407", "907"}
    capsys.readouterr()
