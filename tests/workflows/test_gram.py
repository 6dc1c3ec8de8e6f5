"""Gram stores and sequences as a user meets them: commands, workflow steps, exit codes."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import zarr

from gramplane.storage import BlockStore, GramStore, RunStore
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main
from gramplane.workflows.schema import ResultLine
from tests.support.commands import start, tree_bytes
from tests.support.places import ROOT

WORKFLOWS = ROOT / "workflows"
KERNELS = "rbf(gamma=0.5); rbf(gamma=0.5) trace; poly(degree=2)[0:3]; linear"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A block store of 300 rows."""
    url = tmp_path_factory.mktemp("data") / "store"
    X = np.random.default_rng(0).standard_normal((300, 5)).astype(np.float32)
    ingest((X, np.where(X[:, 0] > 0, 1, -1)), url)
    return url


def result(words: list[object], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code, capsys.readouterr().err
    line = capsys.readouterr().out.rstrip("\n").rpartition("\n")[2]
    assert len(line.encode()) <= 4096
    return ResultLine.model_validate(json.loads(line)).model_dump()


def content(store: Path) -> dict[str, bytes]:
    return {name: value for name, value in tree_bytes(store).items() if name != "lock"}


def spoil(store: Path) -> Path:
    """Change one byte of the largest object."""
    file = max((path for path in store.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    with file.open("r+b") as stream:
        stream.seek(100)
        byte = stream.read(1)
        stream.seek(100)
        stream.write(bytes([byte[0] ^ 1]))
    return file


# -- building --------------------------------------------------------------------------------------------------------------


def test_matrices_are_those_of_the_kernels_and_a_second_call_computes_nothing(data: Path, tmp_path: Path, capsys):
    out = tmp_path / "grams"
    first = result(["gram", data, "--kernels", KERNELS, "--out", out, "--scale", "none"], capsys)
    assert (first["status"], first["kernels"], first["blocks_reused"]) == ("done", 3, 0)
    assert first["blocks_computed"] > 1
    assert first["bytes"] >= 3 * 4 * 300 * 301 // 2
    before = content(out)
    again = result(["gram", data, "--kernels", KERNELS, "--out", out, "--scale", "none"], capsys)
    assert (again["status"], again["blocks_computed"], again["blocks_reused"]) == ("already-done", 0, first["blocks_computed"])
    assert content(out) == before
    X = np.asarray(BlockStore.open(data).columns(np.arange(5)), np.float64)
    store = GramStore.open(out)
    distance = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    for digest, expected in zip(store.kernels, (np.exp(-0.5 * distance), (X[:, :3] @ X[:, :3].T + 1) ** 2, X @ X.T), strict=True):
        found = np.zeros((300, 300))
        for ref in store.refs([digest]):
            found[slice(*ref.rows), slice(*ref.cols)] = ref.load()[0]
        upper = np.triu_indices(300)
        np.testing.assert_allclose(found[upper], expected[upper], rtol=1e-4, atol=1e-4)


def test_more_kernels_leave_what_is_there(data: Path, tmp_path: Path, capsys):
    out = tmp_path / "grams"
    first = result(["gram", data, "--kernels", "linear", "--out", out], capsys)
    before = {name: value for name, value in content(out).items() if "/blocks/" in name}
    more = result(["gram", data, "--kernels", "linear; rbf(gamma=2.0)", "--out", out], capsys)
    assert (more["blocks_computed"], more["blocks_reused"]) == (first["blocks_computed"], first["blocks_computed"])
    assert {name: content(out)[name] for name in before} == before


def test_kernel_file_with_a_grid(data: Path, tmp_path: Path, capsys):
    file = tmp_path / "kernels.yaml"
    file.write_text(
        "- rbf(gamma=0.25)\n- {name: poly, params: {degree: 3}, columns: [0, 2]}\n"
        "- grid: {widths: [1.0, 2.0], degrees: [1], subsets: [[0], [1, 2]]}\n"
    )
    out = tmp_path / "grams"
    assert result(["gram", data, "--kernels", file, "--out", out], capsys)["kernels"] == 8
    shown = result(["inspect", out], capsys)
    assert (shown["kind"], shown["kernels"], shown["blocks_missing"]) == ("grams", 8, 0)
    assert shown["names"][:2] == ["rbf(gamma=0.25)", "poly(degree=3)[0,2]"]
    assert main(["inspect", str(out)]) == 0
    assert "rbf(gamma=0.25)" in capsys.readouterr().out


def test_dry_run_plans_what_the_run_then_does(data: Path, tmp_path: Path, capsys):
    out = tmp_path / "grams"
    words = ["gram", data, "--kernels", KERNELS, "--out", out, "--cluster", "local:2", "--worker-memory", "1GiB"]
    planned = result([*words, "--dry-run"], capsys)
    words = words[:-4]
    assert planned["status"] == "planned" and not out.exists()
    assert planned["task_bytes"] > 0 and planned["process_bytes_at_most"] > planned["task_bytes"]
    done = result(words, capsys)
    assert (planned["tasks"], planned["bytes"]) == (done["blocks_computed"], done["bytes"])
    assert result([*words, "--dry-run"], capsys)["tasks"] == 0


@pytest.mark.cluster
def test_same_bytes_on_two_workers(data: Path, tmp_path: Path, capsys):
    for name, cluster in (("one", "sync"), ("two", "local:2")):
        result(["gram", data, "--kernels", KERNELS, "--out", tmp_path / name, "--cluster", cluster], capsys)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_killed_in_mid_build_it_goes_on_where_it_was(tmp_path: Path, capsys):
    X = np.random.default_rng(1).standard_normal((2000, 40)).astype(np.float32)
    ingest((X, np.where(X[:, 0] > 0, 1, -1)), tmp_path / "store")
    kernels = "; ".join(f"rbf(gamma={g})" for g in (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28))
    words = ["gram", tmp_path / "store", "--kernels", kernels, "--out", tmp_path / "grams"]
    for _ in range(10):  # a kill may come a moment too early or too late
        shutil.rmtree(tmp_path / "grams", ignore_errors=True)
        command = start(words, tmp_path)
        while not command.ended() and not any((tmp_path / "grams").rglob("records/c/*")):
            time.sleep(0.002)
        command.kill()
        left = len(GramStore.open(tmp_path / "grams").missing())
        if 0 < left < 36:
            break
    assert 0 < left < 36
    assert result(words, capsys)["blocks_computed"] == left
    result([*words[:-1], tmp_path / "whole"], capsys)
    assert content(tmp_path / "grams") == content(tmp_path / "whole")
    result(["verify", tmp_path / "grams"], capsys)


# -- damage ----------------------------------------------------------------------------------------------------------------


def test_damage_is_found_and_repaired_to_the_same_bytes(data: Path, tmp_path: Path, capsys):
    out = tmp_path / "grams"
    result(["gram", data, "--kernels", KERNELS, "--out", out], capsys)
    assert result(["verify", out], capsys)["status"] == "ok"
    before = content(out)
    spoil(out)
    damaged = result(["verify", out], capsys, 6)
    assert (damaged["status"], damaged["n_damaged"]) == ("damaged", 1)
    fixed = result(["repair", out, data], capsys)
    assert (fixed["status"], fixed["blocks_computed"]) == ("done", 1)
    assert result(["verify", out], capsys)["status"] == "ok"
    assert content(out) == before
    assert result(["repair", out, data], capsys)["status"] == "already-done"


def test_repair_refuses_other_data_block_stores_and_given_matrices(data: Path, tmp_path: Path, capsys):
    out, other = tmp_path / "grams", tmp_path / "other"
    result(["gram", data, "--kernels", "linear", "--out", out], capsys)
    ingest((np.eye(300, 5, dtype=np.float32), np.arange(300) % 2), other)
    assert "other data" in result(["repair", out, other], capsys, 2)["error"]
    assert "is not a Gram store" in result(["repair", data, data], capsys, 2)["error"]
    np.save(tmp_path / "k.npy", np.eye(300, dtype=np.float32))
    result(["gram", data, "--precomputed", tmp_path / "k.npy", "--out", tmp_path / "given"], capsys)
    spoil(tmp_path / "given")
    assert "computed elsewhere" in result(["repair", tmp_path / "given", data], capsys, 2)["error"]


def test_clean_lists_then_drops_unused_kernels_and_orphans(data: Path, tmp_path: Path, capsys):
    out = tmp_path / "grams"
    result(["gram", data, "--kernels", "linear; rbf(gamma=2.0)", "--out", out], capsys)
    (out / "grams" / "stray").write_bytes(b"x")
    found = result(["clean", out, "--keep", "linear"], capsys)
    assert (found["status"], found["kernels"], found["files"]) == ("planned", ["rbf(gamma=2.0)"], ["grams/stray"])
    assert len(GramStore.open(out).kernels) == 2
    assert result(["clean", out, "--keep", "linear", "--yes"], capsys)["status"] == "done"
    assert len(GramStore.open(out).kernels) == 1 and not (out / "grams" / "stray").exists()
    assert result(["verify", out], capsys)["status"] == "ok"
    assert result(["clean", out], capsys)["n_kernels"] == 0
    assert "--keep is for Gram stores" in result(["clean", data, "--keep", "linear"], capsys, 2)["error"]


# -- matrices and strings ----------------------------------------------------------------------------------------------------


def test_given_matrices(data: Path, tmp_path: Path, capsys):
    given = np.stack([np.eye(300), np.full((300, 300), 0.25)])
    np.savez(tmp_path / "k.npz", a=given[0], b=given[1])
    out = tmp_path / "grams"
    words = ["gram", data, "--precomputed", tmp_path / "k.npz", "--out", out]
    assert result(words, capsys)["kernels"] == 2
    assert result(["inspect", out], capsys)["names"] == ["precomputed a", "precomputed b"]
    zarr.create_array(tmp_path / "k.zarr", data=given, chunks=(1, 100, 100))
    assert result(["gram", data, "--precomputed", tmp_path / "k.zarr", "--out", tmp_path / "from-zarr"], capsys)["kernels"] == 2
    for ref, other in zip(GramStore.open(out).refs(), GramStore.open(tmp_path / "from-zarr").refs(), strict=True):
        np.testing.assert_array_equal(ref.load(), other.load())
    np.savez(tmp_path / "short.npz", a=np.eye(7))
    assert "7 rows" in result(["gram", data, "--precomputed", tmp_path / "short.npz", "--out", tmp_path / "n"], capsys, 3)["error"]
    given[0, 3, 4] = 1.0
    np.save(tmp_path / "bad.npy", given)
    assert "not symmetric" in result(["gram", "--precomputed", tmp_path / "bad.npy", "--out", tmp_path / "b"], capsys, 3)["error"]
    assert not (tmp_path / "n").exists() and not (tmp_path / "b").exists()


@pytest.mark.parametrize("form", ["fasta", "strings"])
def test_sequences_and_string_kernels(form: str, tmp_path: Path, capsys):
    lines = {"fasta": [">s1 label=a", "ACGT", ">s2 label=b", "ACGA", ">s3 label=a", "TTTT"], "strings": ["a\tACGT", "b\tACGA", "a\tTTTT"]}
    (tmp_path / "text").write_text("\n".join(lines[form]) + "\n")
    store, out = tmp_path / "store", tmp_path / "grams"
    assert result(["ingest", tmp_path / "text", store, "--format", form], capsys)["rows"] == 3
    assert result(["gram", store, "--kernels", "spectrum(k=2)", "--out", out], capsys)["kernels"] == 1
    (ref,) = GramStore.open(out).refs()
    np.testing.assert_array_equal(ref.load()[0], [[3, 2, 0], [2, 3, 0], [0, 0, 9]])
    more = ["ingest", tmp_path / "text", tmp_path / "test", "--format", form, "--like", store]
    assert result(more, capsys)["rows"] == 3 and BlockStore.open(tmp_path / "test").meta.labels == BlockStore.open(store).meta.labels
    assert "holds strings" in result(["gram", store, "--kernels", "linear", "--out", tmp_path / "n"], capsys, 3)["error"]


# -- what is refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernels", "code", "told"),
    [
        ("rbf(gama=0.5)", 2, "gama"),
        ("rbff", 2, "rbff"),
        ("rbf(gamma=0.5)[9]", 2, "column 9"),
        ("nowhere.yaml", 2, "nowhere.yaml does not exist"),
        (";", 2, "no kernels"),
        ("spectrum(k=3)", 3, "holds numbers"),
    ],
)
def test_bad_kernels(kernels: str, code: int, told: str, data: Path, tmp_path: Path, capsys):
    assert told in result(["gram", data, "--kernels", kernels, "--out", tmp_path / "grams"], capsys, code)["error"]
    assert not (tmp_path / "grams").exists()


@pytest.mark.parametrize("plan", [["--dry-run"], []])
def test_workers_too_small_for_a_step_are_refused_by_plan_and_command_alike(plan: list[str], data: Path, tmp_path: Path, capsys):
    words = ["gram", data, "--kernels", KERNELS, "--out", tmp_path / "grams", "--cluster", "local:1", "--worker-memory", "200MiB", *plan]
    assert "is enough for all" in result(words, capsys, 5)["error"]
    assert not (tmp_path / "grams").exists()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- grid: {width: [1.0]}\n", "did you mean 'widths'"),
        ("- 3\n", "found 3"),
        ("name: x\n", "list of kernels"),
        ("- grid: {}\n  name: x\n", "must be the only key"),
    ],
)
def test_bad_kernel_files(text: str, told: str, data: Path, tmp_path: Path, capsys):
    (tmp_path / "k.yaml").write_text(text)
    assert told in result(["gram", data, "--kernels", tmp_path / "k.yaml", "--out", tmp_path / "g"], capsys, 2)["error"]


def test_wrong_words(data: Path, tmp_path: Path, capsys):
    out = tmp_path / "grams"
    assert "either --kernels or" in result(["gram", data, "--out", out], capsys, 2)["error"]
    assert "STORE" in result(["gram", "--kernels", "linear", "--out", out], capsys, 2)["error"]
    assert "plans a computation of kernels" in result(["gram", "--precomputed", "x", "--out", out, "--dry-run"], capsys, 2)["error"]


def test_store_of_other_data_and_held_store(data: Path, tmp_path: Path, capsys):
    out, other = tmp_path / "grams", tmp_path / "other"
    result(["gram", data, "--kernels", "linear", "--out", out], capsys)
    ingest((np.eye(20, 5, dtype=np.float32), np.arange(20) % 2), other)
    assert "other data" in result(["gram", other, "--kernels", "linear", "--out", out], capsys, 2)["error"]
    with GramStore.open(out).lock():
        assert "is held by" in result(["gram", data, "--kernels", "linear; rbf(gamma=1.0)", "--out", out], capsys, 99)["error"]


# -- workflow ------------------------------------------------------------------------------------------------------------------


def test_workflow_step(data: Path, tmp_path: Path, capsys):
    (tmp_path / "k.yaml").write_text("- linear\n- grid: {widths: [1.0], degrees: [2]}\n")
    file = tmp_path / "w.yaml"
    file.write_text(
        f"schema: gramplane.workflow/1\nname: kernels\nstore: {data}\nsteps:\n"
        "  - {id: bank, do: gram, with: {kernels: k.yaml, out: grams}}\n"
        "  - {id: some, do: gram, needs: [bank], with: {kernels: [linear, 'rbf(gamma=3.0)'], out: grams}}\n"
        "  - {id: look, do: verify, needs: [some], with: {store: grams}}\n"
    )
    assert result(["run", file, "--check"], capsys)["status"] == "checked"
    assert result(["run", file, "--dry-run"], capsys)["plans"]["bank"]["kernels"] == 13
    done = result(["run", file], capsys)
    assert done["results"]["bank"]["kernels"] == 13
    assert done["results"]["some"]["blocks_reused"] > 0
    assert result(["inspect", tmp_path / "grams"], capsys)["kernels"] == 14


def test_workflow_names_the_place_of_a_bad_kernel(data: Path, tmp_path: Path, capsys):
    file = tmp_path / "w.yaml"
    steps = "steps:\n  - {id: bank, do: gram, with: {kernels: [rbff], out: grams}}\n"
    file.write_text(f"schema: gramplane.workflow/1\nname: kernels\nstore: {data}\n{steps}")
    error = result(["run", file, "--check"], capsys, 2)["error"]
    assert "w.yaml:5:" in error and "rbff" in error


def test_example_learns_from_the_store(tmp_path: Path, capsys):
    (tmp_path / "data").mkdir()
    shutil.copy(WORKFLOWS / "smoke.svm", tmp_path / "data" / "train.svm")
    shutil.copy(WORKFLOWS / "gmkl.yaml", tmp_path / "gmkl.yaml")
    words = ["run", tmp_path / "gmkl.yaml", "--cluster", "sync"]
    found = result(words, capsys)
    assert set(found["steps"].values()) == {"done"}
    assert (tmp_path / "stores" / "grams" / "manifest.json").exists()
    assert result(["inspect", tmp_path / "stores" / "grams"], capsys)["kernels"] == 5
    assert result(words, capsys)["status"] == "already-done"


# -- what kernels leave to the data ----------------------------------------------------------------------------------------


def test_columns_are_named_and_widths_left_out_on_the_command_line(tmp_path: Path, capsys):
    X = np.random.default_rng(0).standard_normal((60, 45)).astype(np.float32)
    names = ["mean radius", "b", *(f"c{j}" for j in range(43))]
    data = ingest((X, np.where(X[:, 0] > 0, 1, -1)), tmp_path / "store", names=names).url
    kernels, out, run = "rbf[mean radius]; linear[b,3]; rbf", tmp_path / "grams", tmp_path / "run"
    assert result(["gram", data, "--kernels", kernels, "--out", out], capsys)["kernels"] == 3
    store = GramStore.open(out)
    found = [store.describe(digest) for digest in store.kernels]
    assert [one.get("columns") for one in found] == [[0], [1, 3], None] and found[2]["params"]["gamma"] == pytest.approx(1 / 180, rel=0.5)
    assert result(["fit", "mkl", "--data", data, "--kernels", kernels, "--run", run, "--set", "max_iter=3"], capsys)["status"] == "done"
    decided = RunStore.open(run).config["decided"]["kernels"]
    assert decided[1] == "linear[1,3]" and decided[0].startswith("rbf(gamma=") and decided[0].endswith(")[0]")
    told = result(["gram", data, "--kernels", "rbf[nothing]", "--out", tmp_path / "other"], capsys, 2)["error"]
    assert "no column has the name 'nothing'; the columns are 'mean radius', 'b'" in told
    assert "lacks a width or gives columns by name" in result(["clean", out, "--keep", "rbf"], capsys, 2)["error"]


def test_a_dry_run_without_kernels_says_which_are_taken(tmp_path: Path, capsys):
    X = np.random.default_rng(0).standard_normal((60, 45)).astype(np.float32)
    data = ingest((X, np.where(X[:, 0] > 0, 1, -1)), tmp_path / "store").url
    assert main(["fit", "mkl", "--data", str(data), "--run", str(tmp_path / "run"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "so 10 kernels on all features are used" in shown and shown.startswith("fits: ")
    assert main(["fit", "mkl", "--data", str(data), "--run", str(tmp_path / "run"), "--set", "max_iter=3"]) == 0
    assert "so 10 kernels on all features are used" in "".join(capsys.readouterr())
