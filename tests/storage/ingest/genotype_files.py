"""Genotype files, written bit by bit; -1 stands for a missing genotype."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

MISSING = -1
_CODES = {2: 0b00, MISSING: 0b01, 1: 0b10, 0: 0b11}  # copies of allele 1


def draw_genotypes(n: int, m: int, seed: int = 0, missing: float = 0.1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    G = rng.binomial(2, rng.uniform(0.1, 0.5, m), (n, m))
    return np.where(rng.random((n, m)) < missing, MISSING, G)


def write_bed(path: Path, G: np.ndarray, phenotypes: Sequence[object] | None = None, variants: Sequence[str] | None = None) -> Path:
    """Write .bed, .bim and .fam. ``variants``: lines of .bim [default: rs0, rs1, … with the alleles A, which is counted, and G]."""
    n, m = G.shape
    codes = np.array([_CODES[g] for g in G.T.ravel().tolist()], np.uint8).reshape(m, n)
    codes = np.pad(codes, ((0, 0), (0, -n % 4))).reshape(m, -1, 4)
    path.write_bytes(b"\x6c\x1b\x01" + (codes << np.array([0, 2, 4, 6], np.uint8)).sum(axis=2).astype(np.uint8).tobytes())
    values = [1 + k % 2 for k in range(n)] if phenotypes is None else phenotypes
    path.with_suffix(".fam").write_text("".join(f"F{k // 2} I{k} 0 0 1 {value}\n" for k, value in enumerate(values)))
    lines = [f"{1 + j * 22 // m}\trs{j}\t0\t{100 * j + 7}\tA\tG" for j in range(m)] if variants is None else variants
    path.with_suffix(".bim").write_text("".join(f"{line}\n" for line in lines))
    return path
