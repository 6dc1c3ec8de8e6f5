"""A table of mixed types with a known rule: identifiers, numbers with missing values, categories, booleans, dates."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Table = Mapping[str, Sequence[Any]]
_MISSING, _NOISE = 0.08, 0.03  # shares of values that are missing, and of outcomes that do not follow the rule


@dataclass(frozen=True)
class Patients:
    """Training and test columns by name; missing values are ``None``, and the test columns are in another order.

    ``rule``: the rule that determines who is ill, apart from a few random outcomes.
    """

    train: Table
    test: Table
    rule: str = "(age > 60 and smoker = yes) or (pressure > 150 and ward = east)"

    def to_csv(self, train: str | Path, test: str | Path) -> None:
        """Write both parts as CSV. Missing values become empty cells."""
        for path, table in ((train, self.train), (test, self.test)):
            with Path(path).open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(table)
                writer.writerows(zip(*table.values(), strict=True))


def patients(n: int = 600, n_test: int = 200, *, seed: int = 0) -> Patients:
    """Return a training table of ``n`` rows and a test table of ``n_test`` rows.

    Columns are patient id, age, pressure, smoker, ward, zip code, day of admission and outcome.

    Examples
    --------
    >>> from gramplane.datasets import patients
    >>> table = patients(n=50)
    >>> sorted(table.train)
    ['admitted', 'age', 'outcome', 'patient', 'pressure', 'smoker', 'ward', 'zip']
    """
    rng = np.random.default_rng(seed)
    train, test = _part(rng, n, 0), _part(rng, n_test, n)
    return Patients(train, {name: test[name] for name in reversed(test)})


def _part(rng: np.random.Generator, n: int, first: int) -> dict[str, list[Any]]:
    age, pressure = np.clip(rng.normal(58, 14, n), 18, 95).round(), rng.normal(140, 18, n).round()
    smoker, ward = rng.choice(["no", "yes"], n), rng.choice(["east", "north", "south"], n)
    is_ill = ((age > 60) & (smoker == "yes")) | ((pressure > 150) & (ward == "east"))
    is_ill ^= rng.random(n) < _NOISE
    days = np.datetime64("2024-01-01") + rng.integers(0, 365, n)
    columns: dict[str, list[Any]] = {"patient": [f"p{first + k:04d}" for k in range(n)]}
    columns |= {
        "age": age.astype(int).tolist(),
        "pressure": pressure.astype(int).tolist(),
        "smoker": smoker.tolist(),
        "ward": ward.tolist(),
    }
    columns |= {"zip": rng.choice(["01067", "10115", "80331"], n).tolist(), "admitted": days.astype(str).tolist()}
    for name in ("age", "pressure", "ward"):
        gone = rng.random(n) < _MISSING
        columns[name] = [None if missing else value for value, missing in zip(columns[name], gone, strict=True)]
    return {**columns, "outcome": np.where(is_ill, "ill", "well").tolist()}
