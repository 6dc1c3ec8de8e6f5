"""Genotype files: every genotype, missing ones, phenotypes; what does not fit is refused by name."""

import importlib.util

import numpy as np
import pytest

from gramplane.storage import BlockStore, DataError, SchemaError
from gramplane.storage.ingest import ingest, reading
from gramplane.storage.ingest.tables import genotypes
from tests.storage.ingest.genotype_files import MISSING, draw_genotypes, write_bed

SMALL = 8 << 20


def known(G):
    return np.ma.masked_equal(G, MISSING)


@pytest.fixture
def cohort(tmp_path):
    G = draw_genotypes(30, 11)
    G[:, 3] = MISSING
    G[:, 4] = 1
    return write_bed(tmp_path / "cohort.bed", G), G


def test_columns_are_copies_of_allele_one(cohort, tmp_path):
    path, G = cohort
    store = ingest(path, tmp_path / "S")
    filled = np.ma.filled(known(G).astype(np.float32), known(G).mean(axis=0).filled(0).astype(np.float32))
    np.testing.assert_array_equal(store.columns(np.arange(11)), filled)
    assert store.meta.kind == "dense" and store.meta.dtype == "float32"
    assert store.feature_names() == [f"rs{j}" for j in range(11)]
    assert list(store.ids()) == [f"F{k // 2} I{k}" for k in range(30)]
    assert store.meta.labels == (1, 2)
    np.testing.assert_array_equal(store.row_table("y"), np.arange(30) % 2)
    kept = ingest(path, tmp_path / "K", missing="keep")
    np.testing.assert_array_equal(kept.columns(np.arange(11)), known(G).astype(np.float32).filled(np.nan))
    assert kept.meta.n_missing == np.sum(G == MISSING)


def test_scores_of_scaled_columns_are_those_of_the_genotypes_that_are_there(cohort, tmp_path):
    path, G = cohort
    store = ingest(path, tmp_path / "S", scale="standard")
    scale, X = store.scale, store.columns(np.arange(11)).astype(np.float64)
    Z, u = (X - scale.shift) * scale.factor, np.random.default_rng(1).normal(size=30)
    for j in range(11):
        there = [i for i in range(30) if G[i, j] != MISSING]
        g = np.array([G[i, j] for i in there], float)
        deviation, mean = (g.std(), g.mean()) if there else (0.0, 0.0)
        score = 0.0 if deviation == 0 else (g @ u[there] - mean * u[there].sum()) / deviation
        assert Z[:, j] @ u == pytest.approx(score, rel=1e-6, abs=1e-6)
        assert not Z[G[:, j] == MISSING, j].any()


@pytest.mark.parametrize("missing", ["refuse", "keep"])
def test_in_pieces_as_at_once(tmp_path, missing):
    path = write_bed(tmp_path / "a.bed", draw_genotypes(1501, 700))
    scale = "none" if missing == "keep" else "standard"
    one, two = (ingest(path, tmp_path / f"S{size}", budget=size, missing=missing, scale=scale) for size in (1 << 30, SMALL))
    np.testing.assert_array_equal(one.columns(np.arange(700)), two.columns(np.arange(700)))
    if missing == "refuse":
        np.testing.assert_array_equal(one.scale.factor, two.scale.factor)
    assert ingest(path, tmp_path / f"S{SMALL}", budget=SMALL, missing=missing, scale=scale).digest == two.digest  # nothing to do
    with pytest.raises(SchemaError, match="different store"):
        write_bed(tmp_path / "a.bed", draw_genotypes(1501, 700, 1))
        ingest(path, tmp_path / f"S{SMALL}", budget=SMALL, missing=missing, scale=scale)


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("phase", ["read", "columns", "tables"])
def test_killed_and_resumed(cohort, tmp_path, monkeypatch, phase):
    path, _ = cohort
    monkeypatch.setattr(reading, "HELD_SHARE", 1 << 40)  # all on scratch
    straight = ingest(path, tmp_path / "straight", scale="standard")

    def end(done, total, now):
        if now == phase:
            raise Killed

    with pytest.raises(Killed):
        ingest(path, tmp_path / "S", scale="standard", progress=end)
    assert (tmp_path / "S.ingest").exists()
    assert ingest(path, tmp_path / "S", scale="standard").digest == straight.digest


DAMAGE = {
    "a text": (".bed", lambda data: b"chr1\t100\t200\n", "is no .bed file of PLINK: it begins with the bytes 63 68 72, not 6c 1b 01"),
    "empty": (".bed", lambda data: b"", "is no .bed file"),
    "by person": (".bed", lambda data: b"\x6c\x1b\x00" + data[3:], "person by person"),
    "cut short": (".bed", lambda data: data[:-1], r"has 90 bytes, but 11 variants \(.bim\) of 30 people \(.fam\) take 91 bytes"),
    "too long": (".bed", lambda data: data + b"\0", "has 92 bytes"),
    "a variant too many": (".bim", lambda data: data + b"1 more 0 9 A G\n", "has 91 bytes, but 12 variants"),
    "a person too few": (".fam", lambda data: b"".join(data.splitlines(True)[:-2]), "of 28 people"),
    "a person twice": (".fam", lambda data: data.replace(b"F1 I2 ", b"F0 I1 "), r"fam:3: person F0 I1 occurs twice, first in line 2"),
    "a person without id": (".fam", lambda data: data.replace(b"F1 I2 ", b"F1 0 "), r"fam:3: the IID is missing"),
    "a cell of .fam missing": (".fam", lambda data: data.replace(b"F1 I2 ", b"I2 "), r"fam:3: the line has 5 cells; expected are FID"),
    "a variant twice": (".bim", lambda data: data.replace(b"rs2\t", b"rs1\t"), r"bim:3: variant rs1 occurs twice"),
    "a variant without id": (".bim", lambda data: data.replace(b"rs2\t", b".\t"), r"bim:3: the variant id is missing"),
    "no position": (".bim", lambda data: data.replace(b"\t207\t", b"\tx\t"), r"bim:3: the position of variant rs2 is 'x'"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_does_not_fit_is_refused(cohort, tmp_path, name):
    path, _ = cohort
    ending, change, message = DAMAGE[name]
    damaged = path.with_suffix(ending)
    damaged.write_bytes(change(damaged.read_bytes()))
    with pytest.raises(DataError, match=message):
        ingest(path, tmp_path / "S")
    assert not (tmp_path / "S").exists()


def test_refusals_before_anything_is_read(cohort, tmp_path, monkeypatch):
    path, _ = cohort
    with pytest.raises(SchemaError, match=r"missing is 'median'.*mean of its column, or stays missing with keep"):
        ingest(path, tmp_path / "S", missing="median")
    with pytest.raises(SchemaError, match="give tables with FID and IID"):
        ingest(path, tmp_path / "S", target="bmi")
    with pytest.raises(SchemaError, match="more than half of the budget"):
        monkeypatch.setattr(genotypes, "VARIANT_BYTES", 1 << 20)
        ingest(path, tmp_path / "S", budget=SMALL)
    path.with_suffix(".bim").unlink()
    with pytest.raises(DataError, match=r"cohort.bim: is missing; cohort.bed needs"):
        ingest(path, tmp_path / "S")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SchemaError, match=r"install gramplane\[genetics\]"):
        ingest(path, tmp_path / "S")


def stored(tmp_path, phenotypes, **options):
    """Ingest a file with these phenotypes, 1 and 2 among them if there are few; return the store."""
    path = write_bed(tmp_path / "a.bed", draw_genotypes(len(phenotypes), 3), phenotypes)
    return ingest(path, tmp_path / "S", **options)


@pytest.mark.parametrize("task", ["auto", "classification"])
def test_case_and_control(tmp_path, task):
    with pytest.raises(DataError, match="person F1 I2: the label is missing; --drop-missing-targets"):
        stored(tmp_path, [1, 2, 0, 2, -9, 1], task=task)
    with pytest.warns(UserWarning) as told:
        store = stored(tmp_path, [1, 2, 0, 2, -9, 1], task=task, drop_missing_targets=True)
    assert any("2 is a case (2 people), 1 a control (2); 0 and -9 are missing (2)" in str(one.message) for one in told)
    assert store.meta.labels == (1, 2) and store.row_table("y").tolist() == [0, 1, 1, 0]
    assert list(store.ids()) == ["F0 I0", "F0 I1", "F1 I3", "F2 I5"]


def test_phenotypes_of_other_forms(tmp_path):
    named = stored(tmp_path, ["ill", "well", "well", "ill"])
    assert named.meta.labels == ("ill", "well")
    zero = stored(tmp_path, [0, 1, 2, 3], overwrite=True)
    assert zero.meta.labels == (0, 1, 2, 3)  # classes of another code, where 0 is one
    real = stored(tmp_path, [0, 1.5, -9, "NA", -2], task="regression", drop_missing_targets=True, overwrite=True)
    assert real.row_table("y").tolist() == [0.0, 1.5, -2.0]
    coded = stored(tmp_path, [1, 2, 0, 0], task="regression", overwrite=True)
    assert coded.row_table("y").tolist() == [1.0, 2.0, 0.0, 0.0]
    with pytest.warns(UserWarning, match=r"nobody has a phenotype in a.fam: the store has no target"):
        assert not stored(tmp_path, [-9, 0, -9], overwrite=True).has_table("y")
    with pytest.raises(DataError, match=r"a.fam: phenotype has the values 0 and 1, and no 2"):
        stored(tmp_path, [0, 1, 1, 0], overwrite=True)
    given = stored(tmp_path, [0, 1, 1, 0], target=np.array([0, 1, 1, 0]), overwrite=True)
    assert given.meta.labels == (0, 1)


def test_a_dry_run_reads_no_genotype(cohort, tmp_path, monkeypatch):
    path, _ = cohort
    monkeypatch.setattr(genotypes.BedSource, "_panels", lambda *_: pytest.fail("read"))
    plan = ingest(path, tmp_path / "S", dry_run=True)
    assert (plan["rows"], plan["columns"], plan["kind"], plan["format"]) == (30, 11, "dense", "bed")
    assert not (tmp_path / "S").exists()


def test_the_store_says_where_it_is_from(cohort, tmp_path):
    path, _ = cohort
    store = BlockStore.open(ingest(str(path), tmp_path / "S", format="bed").url)
    assert store.source.format == "bed" and store.meta.info["source"] == {"name": "cohort.bed", "format": "bed"}


# Tables about the people, lists, and further files.


def text(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


@pytest.mark.parametrize("mark", [",", "\t", "  "])
def test_tables_are_joined_by_fid_and_iid(cohort, tmp_path, mark):
    path, _ = cohort
    order = np.random.default_rng(0).permutation(30)
    people = [(f"F{k // 2}", f"I{k}", str(k / 4), str(1 + k % 3), "ab"[k % 2]) for k in order]
    lines = [mark.join(cells) for cells in [("#FID", "IID", "bmi", "age", "site"), *people, ("F99", "I99", "1", "2", "a")]]
    table = text(tmp_path / "pheno.txt", *lines)
    more = text(tmp_path / "more.csv", "IID,FID,dose", *(f"I{k},F{k // 2},{k}" for k in range(30)))
    options = {"join": [table, more], "covariates": ["age", "dose"], "task_column": "site", "task": "regression"}
    store = ingest(path, tmp_path / "S", target="bmi", **options)
    np.testing.assert_array_equal(store.row_table("y"), np.arange(30) / 4)
    np.testing.assert_array_equal(store.row_table("covariates"), np.column_stack([1 + np.arange(30) % 3, np.arange(30)]))
    assert store.meta.covariates == ("age", "dose") and store.meta.task_names == ("a", "b")
    with pytest.raises(SchemaError, match="no joined table has a column 'weight'; they have bmi, age, site, dose"):
        ingest(path, tmp_path / "T", target="weight", **options)


def test_what_tables_do_not_tell_is_missing(cohort, tmp_path):
    path, _ = cohort
    rows = [f"F{k // 2} I{k} {[-9, 0, 1, 2, 'NA', '.', 1, 2][k % 8]} {k}" for k in range(28)]
    table = text(tmp_path / "pheno.txt", "FID IID ill age", *rows)
    with pytest.warns(UserWarning) as told:
        store = ingest(path, tmp_path / "S", join=[table], target="ill", drop_missing_targets=True)
    assert store.meta.labels == (1, 2) and store.n_rows == 14
    assert any("2 people are not in" in str(one.message) and "such as F14 I28" in str(one.message) for one in told)
    with pytest.raises(DataError, match="person F14 I28: the covariate age"):
        ingest(path, tmp_path / "T", join=[table], covariates="age")
    twice = text(tmp_path / "twice.txt", "FID IID ill", "F0 I0 1", "F0 I1 2", "F0 I0 2")
    with pytest.raises(DataError, match=r"twice.txt:4: person F0 I0 occurs twice, first in line 2"):
        ingest(path, tmp_path / "T", join=[twice], target="ill")
    with pytest.raises(SchemaError, match=r"column 'ill' is in .*pheno.txt and in .*twice.txt"):
        ingest(path, tmp_path / "T", join=[table, twice], target="ill")
    for name, lines, message in (
        ("none", ["FID ill", "F0 1"], r"none:1: the first line must name the columns, each once, with FID and IID; it has FID, ill"),
        ("short", ["FID IID ill", "F0 I0"], "short:2: the line has 2 cells; the first line names 3"),
    ):
        with pytest.raises(DataError, match=message):
            ingest(path, tmp_path / "T", join=[text(tmp_path / name, *lines)], target="ill")
    with pytest.raises(SchemaError, match="give tables with FID and IID"):
        ingest(path, tmp_path / "T", target="ill")


def test_people_without_a_target_count_nowhere(cohort, tmp_path):
    path, G = cohort
    table = text(tmp_path / "pheno.txt", "FID IID bmi age", *(f"F{k // 2} I{k} {k / 4} {40 + k}" for k in range(20)))
    options = {"join": [table], "target": "bmi", "covariates": "age", "task": "regression", "scale": "standard"}
    with pytest.warns(UserWarning, match="10 people without a target are left out"):
        store = ingest(path, tmp_path / "S", drop_missing_targets=True, **options)
    keep = text(tmp_path / "keep.txt", *(f"F{k // 2} I{k}" for k in range(20)))
    listed = ingest(path, tmp_path / "K", keep=keep, **options)
    assert store.column_facts() == listed.column_facts()
    assert store.column_facts()[0].endswith(f"\t{float(known(G)[:20, 0].mean()) / 2!r}")
    np.testing.assert_array_equal(store.scale.factor, listed.scale.factor)
    np.testing.assert_array_equal(store.columns(np.arange(11)), listed.columns(np.arange(11)))
    np.testing.assert_array_equal(store.row_table("covariates").ravel(), 40 + np.arange(20))


def test_lists_of_people_and_variants(cohort, tmp_path):
    path, G = cohort
    keep = text(tmp_path / "keep.txt", "#FID IID", "F4 I9 more", "F0 I0", "F0 I5")
    extract = text(tmp_path / "extract.txt", "rs7", "rs2", "rs99")
    with pytest.warns(UserWarning) as told:
        store = ingest(path, tmp_path / "S", keep=keep, extract=extract, missing="keep")
    np.testing.assert_array_equal(store.columns(np.arange(2)), known(G)[[0, 9]][:, [2, 7]].astype(np.float32).filled(np.nan))
    assert list(store.ids()) == ["F0 I0", "F4 I9"] and store.feature_names() == ["rs2", "rs7"]
    told = [str(one.message) for one in told]
    assert any("1 of the people in" in one and "such as F0 I5" in one for one in told)
    assert any("1 of the variants in" in one and "such as rs99" in one for one in told)
    with pytest.raises(SchemaError, match="different store"):
        ingest(path, tmp_path / "S", keep=text(tmp_path / "keep.txt", "F0 I0"), extract=extract, missing="keep")
    with pytest.raises(DataError, match="names none of the 11 variants"):
        ingest(path, tmp_path / "T", extract=text(tmp_path / "extract.txt", "rs99"))
    with pytest.raises(SchemaError, match=r"keep is for genotypes \(.bed\)"):
        ingest(np.eye(3), tmp_path / "T", keep=keep)


def test_a_further_file_counts_the_same_alleles(tmp_path):
    first, second = draw_genotypes(40, 4), draw_genotypes(13, 5, 1)
    train = ingest(write_bed(tmp_path / "a.bed", first), tmp_path / "A", scale="standard")
    lines = ["1 rs3 0 307 G A", "1 new 0 5 A G", "1 rs0 0 7 0 G", "1 rs2 0 207 A 0", "1 rs1 0 107 0 A"]
    path = write_bed(tmp_path / "b.bed", second, variants=lines)
    with pytest.warns(UserWarning, match="1 variants that are not in the training data are left out"):
        store = ingest(path, tmp_path / "B", like=tmp_path / "A")
    turned = np.where(second == MISSING, MISSING, 2 - second)
    G = np.column_stack([second[:, 2], turned[:, 4], second[:, 3], turned[:, 0]])
    filled = np.where(G == MISSING, known(first).mean(axis=0).data.astype(np.float32), G).astype(np.float32)
    np.testing.assert_array_equal(store.columns(np.arange(4)), filled)
    np.testing.assert_array_equal(store.scale.factor, train.scale.factor)
    assert store.feature_names() == train.feature_names() and store.column_facts() == train.column_facts()
    frequency = float(known(first)[:, 0].mean() / 2)
    assert train.column_facts()[0] == f"1\t7\tA\tG\t{frequency!r}" and train.whole_source().facts == train.column_facts()
    with pytest.raises(SchemaError, match="extract is given"):
        ingest(path, tmp_path / "C", like=tmp_path / "A", extract=str(path))
    for variants, message in (
        (["1 rs0 0 7 C T", *lines[:2], *lines[3:]], "variant rs0 has the alleles C/T, but A/G in the training data"),
        (["1 other 0 7 A G", *lines[:2], *lines[3:]], "has no variant rs0, which the training data have"),
    ):
        with pytest.raises(DataError, match=message):
            ingest(write_bed(tmp_path / "c.bed", second, variants=variants), tmp_path / "C", like=tmp_path / "A")
    with pytest.raises(SchemaError, match="holds genotypes; <ndarray> holds no genotypes"):
        ingest(first, tmp_path / "C", like=tmp_path / "A")


def test_the_target_of_a_further_file_is_that_of_the_training_data(cohort, tmp_path):
    path, _ = cohort
    table = text(tmp_path / "pheno.txt", "FID IID bmi", *(f"F{k // 2} I{k} {k / 4}" for k in range(30)))
    train = ingest(path, tmp_path / "A", join=[table], target="bmi", task="regression")
    again = ingest(path, tmp_path / "B", like=tmp_path / "A", join=[table])
    np.testing.assert_array_equal(again.row_table("y"), train.row_table("y"))
    assert not ingest(path, tmp_path / "C", like=tmp_path / "A").has_table("y")  # .fam has another phenotype
