"""
Find variants beside age and ancestry
=====================================

A study looks for variants of the genome that change a trait. People of
different ancestry differ in thousands of variants and, for other reasons, in
the trait. So age and ancestry stay in the model as covariates, and
``gramplane fit fgm`` selects the variants that matter in addition.
"""

# %%
# Simulate a cohort
# -----------------
# Each chromosome is a mosaic of twenty founders: in blocks of 20 variants,
# neighbours are inherited together. Two populations have different founders.
# Five variants and age change the trait, and so does the population, through
# habits. The files are those of PLINK: genotypes in ``.bed``, variants in
# ``.bim``, people in ``.fam``.
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from bed_reader import to_bed

N_VARIANTS, BLOCK, FOUNDERS = 2000, 20, 20
CAUSAL = np.array([150, 530, 910, 1290, 1670])
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name)
rng = np.random.default_rng(0)
common = rng.uniform(0.2, 0.8, N_VARIANTS)
differing = np.clip(common + rng.normal(0, 0.2, (2, N_VARIANTS)), 0.05, 0.95)
founders = rng.random((2, FOUNDERS, N_VARIANTS)) < differing[:, None]
place = np.arange(N_VARIANTS)


def simulate(n):
    """Return genotypes, the trait and age of people."""
    population = rng.integers(0, 2, n)
    genotypes = np.zeros((n, N_VARIANTS))
    for _ in ("mother", "father"):
        mosaic = rng.integers(0, FOUNDERS, (n, N_VARIANTS // BLOCK))
        mosaic = mosaic.repeat(BLOCK, axis=1)
        genotypes += founders[population[:, None], mosaic, place]
    age = rng.integers(30, 70, n)
    trait = 20 + 0.08 * age + 10 * population + rng.normal(0, 1.2, n)
    trait += genotypes[:, CAUSAL] @ [1.0, -1.0, 0.8, -0.8, 0.7]
    return genotypes, trait, age


def write(name, genotypes, trait, age, components, exchanged=slice(0)):
    """Write the files; in some variants, exchange the two alleles."""
    counted = np.full(N_VARIANTS, "A")
    other = np.full(N_VARIANTS, "G")
    counted[exchanged], other[exchanged] = "G", "A"
    values = genotypes.copy()
    values[:, exchanged] = 2 - values[:, exchanged]
    values[rng.random(values.shape) < 0.02] = np.nan
    people = [f"{name}{k}" for k in range(len(trait))]
    properties = {
        "fid": people,
        "iid": people,
        "chromosome": 1 + place * 22 // N_VARIANTS,
        "sid": [f"rs{k}" for k in place],
        "bp_position": 5000 * (1 + place),
        "allele_1": counted,
        "allele_2": other,
    }
    to_bed(folder / f"{name}.bed", values, properties)
    table = np.column_stack([people, people, trait.round(2), age, components])
    lines = [" ".join(cells) for cells in [heading, *table.tolist()]]
    (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")


# %%
# The trait and the covariates are in a table with the columns ``FID`` and
# ``IID``. Ancestry is the first principal component of the genotypes, as
# ``plink --pca`` computes it. The second study counts other alleles in a
# third of the variants.
heading = ["FID", "IID", "trait", "age", "PC1"]
n, n_later = 700, 300
genotypes, trait, age = simulate(n + n_later)
centred = genotypes - genotypes[:n].mean(axis=0)
direction = np.linalg.svd(centred[:n], full_matrices=False)[2][0]
PC1 = (centred @ direction).round(3)
write("cohort", genotypes[:n], trait[:n], age[:n], PC1[:n])
write(
    "later", genotypes[n:], trait[n:], age[n:], PC1[n:], slice(None, None, 3)
)
print((folder / "cohort.bim").read_text()[:70])
print((folder / "cohort.txt").read_text()[:90])


# %%
# Read the genotypes
# ------------------
# A column is a variant and counts the copies of its first allele. ``--join``
# finds the rows of the table by ``FID`` and ``IID``. A missing genotype
# becomes the mean of its column; ``--scale standard`` divides by the
# deviation of the genotypes that are there.
def gramplane(*words):
    """Run a command in the folder; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "gramplane.workflows.cli", *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": "79"},
        capture_output=True,
        text=True,
    )
    output = (done.stdout + done.stderr * (done.returncode > 0)).rstrip()
    return f"$ gramplane {' '.join(words)}\n{output}\n".replace(
        f"{folder}/", ""
    )


join = ["--target", "trait", "--task", "regression", "--scale", "standard"]
beside = ["--join", "cohort.txt", *join, "--covariates", "age,PC1"]
print(gramplane("ingest", "cohort.bed", "beside", *beside))
gramplane("ingest", "cohort.bed", "alone", "--join", "cohort.txt", *join)

# %%
# Select variants
# ---------------
# The table says where each variant lies and which allele its weight is for.
fit = ["fit", "fgm", "--set", "B=1", "--set", "max_rounds=5", "--data"]
print(gramplane(*fit, "beside", "--run", "fit"))
gramplane(*fit, "alone", "--run", "without")

# %%
# Without the covariates, the search selects variants that only tell the
# populations apart:
from gramplane import load_model

figure, axes = plt.subplots(
    2, figsize=(7, 4.4), layout="constrained", sharex=True, sharey=True
)
for axis, run, title in (
    (axes[0], "without", "without covariates"),
    (axes[1], "fit", "beside age and PC1"),
):
    model = load_model(folder / run)
    weights = np.abs(model.coef_[0])
    chosen = np.flatnonzero(weights)
    found = np.isin(chosen // BLOCK, CAUSAL // BLOCK)
    print(f"{title}: {found.sum()} of {len(chosen)} in a block that matters")
    for place_of in CAUSAL:
        axis.axvline(place_of, color="black", linestyle=":", linewidth=0.8)
    for kind, colour in ((found, "#0072B2"), (~found, "#D55E00")):
        axis.vlines(chosen[kind], 0, weights[chosen[kind]], colour, lw=3)
    axis.set(title=title, ylabel="|weight|", ylim=(0, None))
axes[1].set_xlabel("variant; dotted: those that change the trait")

# %%
# Predict another study
# ---------------------
# ``--like`` finds variants by name and counts the same alleles as in the
# cohort, although the file names them the other way round.
like = ["--like", "beside", "--join", "later.txt"]
gramplane("ingest", "later.bed", "later", *like)
print(gramplane("score", "fit", "later"))

# %%
# What to try when it is bad
# --------------------------
# * **A variant beside the one that matters**: neighbours carry the same
#   information. Report the block, or thin the variants first
#   (``plink --indep-pairwise``) and read the rest with ``--extract``.
# * **Relatives or several populations**: keep unrelated people (``--keep``),
#   and pass more components as covariates.
# * **The fit is rejected for lack of memory**: a store has four bytes per
#   genotype; ``--extract`` fewer variants, or raise ``--budget``.
# * **Cases and controls**: leave out ``--task``. In ``.fam`` and for
#   ``--target``, 1 is a control, 2 a case, and 0 and -9 are missing.
