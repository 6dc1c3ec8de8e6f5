"""Image re-ranking as a user types it: ingest, fit with a file of tags, resume, predict seen and unseen images, report; the example."""

import csv
import shutil

import numpy as np
import pytest

from gramplane.pipeline import load_model, run_method
from gramplane.pipeline.methods.semantic_ranker.estimator import SemanticKernelRanker
from gramplane.pipeline.synthetic.images import planted_images
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main
from tests.support.commands import result
from tests.support.places import ROOT

WORKFLOWS = ROOT / "workflows"


@pytest.fixture
def query(tmp_path):
    """A store of images in the file's folder, and the file of their tags."""
    q = planted_images(40, n_scattered=8, seed=2)
    ingest((q.X, q.relevant.astype(int)), tmp_path / "images", progress=None)
    (tmp_path / "tags.txt").write_text("\n".join(q.tag_lines()) + "\n")
    return q


def fit(folder, run="run", *more):
    return ["fit", "semantic-ranker", "--data", folder / "images", "--tags", folder / "tags.txt", "--run", folder / run, *more]


def column(path, name="prediction"):
    with path.open() as file:
        return [float(row[name]) for row in csv.DictReader(file)]


def test_from_images_and_tags_to_scores_and_a_report(tmp_path, query, capsys):
    plan = result(fit(tmp_path, "run", "--dry-run"), capsys)["plan"]
    assert (plan["images"], plan["untagged"]) == (40, 0)
    peer = SemanticKernelRanker().fit(query.X, query.tags)
    summary = result(fit(tmp_path), capsys)["summary"]
    assert summary["objective"] == pytest.approx(peer.objective_)
    assert summary["top"] == peer.rank(5).tolist()
    assert summary["precision"]["10"] == pytest.approx(query.relevant[peer.rank(10)].mean())
    assert result(fit(tmp_path), capsys)["status"] == "already-done"
    assert result(["predict", tmp_path / "run", tmp_path / "images", tmp_path / "scores.csv"], capsys)["rows"] == 40
    np.testing.assert_allclose(column(tmp_path / "scores.csv"), peer.scores_, atol=1e-12)
    assert main(["score", str(tmp_path / "run"), str(tmp_path / "images")]) != 0
    assert "learns without a target" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page")]) == 0
    with (tmp_path / "page" / "ranking.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["row"]) for row in rows] == peer.rank(50).tolist()


def test_unseen_images_are_predicted_from_their_looks(tmp_path, query, capsys):
    result(fit(tmp_path), capsys)
    peer, fresh = SemanticKernelRanker().fit(query.X, query.tags), planted_images(6, seed=5).X
    ingest(fresh, tmp_path / "fresh", progress=None)
    result(["predict", tmp_path / "run", tmp_path / "fresh", tmp_path / "fresh.csv"], capsys)
    np.testing.assert_allclose(column(tmp_path / "fresh.csv"), peer.score_samples(fresh), atol=1e-12)
    ingest(fresh[:, :9], tmp_path / "narrow", progress=None)
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "narrow"), str(tmp_path / "narrow.csv")]) != 0
    assert "has 9 features, the model was trained on 10" in capsys.readouterr().err


def test_weights_of_rows_are_the_prior(tmp_path, query):
    prior = np.where(query.relevant, 3.0, 1.0)
    store = ingest(query.X, tmp_path / "weighted", weight_column=prior, progress=None)
    run_method("semantic-ranker", {}, data=store.url, run=str(tmp_path / "run"), extra={"tags": query.tag_lines()})
    np.testing.assert_allclose(load_model(tmp_path / "run").prior_, prior / prior.sum())


def test_bad_tags_of_a_run(tmp_path, query, capsys):
    assert main(["fit", "semantic-ranker", "--data", str(tmp_path / "images"), "--run", str(tmp_path / "run")]) != 0
    assert "semantic-ranker needs tags" in capsys.readouterr().err
    lines = query.tag_lines()
    (tmp_path / "tags.txt").write_text("\n".join(lines[:-1]) + "\n")
    assert main([str(word) for word in fit(tmp_path)]) == 3
    assert "the file has 39 lines" in capsys.readouterr().err
    (tmp_path / "tags.txt").write_text("\n".join(["", *lines[1:]]) + "\n")
    assert main([str(word) for word in fit(tmp_path)]) != 0
    assert "tags: no tag in row 0\nhelp: set untagged='zero'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert result(fit(tmp_path, "run", "--set", "untagged=zero"), capsys)["summary"]["untagged"] == 1


@pytest.mark.slow
def test_the_example_runs_as_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("GRAMPLANE_STORE", raising=False)
    monkeypatch.delenv("GRAMPLANE_RUNS", raising=False)
    for name in ("image_rerank.yaml", "images.svm", "images_tags.txt", "images_queries.txt"):
        shutil.copy(WORKFLOWS / name, tmp_path)
    assert result(["run", tmp_path / "image_rerank.yaml", "--check"], capsys)["status"] == "checked"
    assert result(["run", tmp_path / "image_rerank.yaml"], capsys)["status"] == "done"
    assert len(column(tmp_path / "scores.csv")) == 80
    (page,) = (path.read_text() for path in (tmp_path / "runs").rglob("report.html"))
    assert "Re-ranking of images" in page
    (precision,) = (path for path in (tmp_path / "runs").rglob("precision.csv"))
    assert column(precision, "precision")[0] == 1.0
    (many,) = (tmp_path / "runs").rglob("many")
    machine = load_model(many)
    assert machine.queries_ == ["harbour", "market"] and set(machine.rank(query="market")) == set(range(40, 80))
    assert result(["run", tmp_path / "image_rerank.yaml"], capsys)["status"] == "already-done"
