"""``npkl`` at ``--driver-memory 16MiB`` ran at 843 MiB, rule ensembles took 800 MB at 4 MiB, and nothing said so."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gramplane.storage.ingest import ingest
from tests.support.commands import start

from .walks import walk


@walk(15, "more than the driver may hold ends with 5 before it is taken, and names what would help")
def the_driver_refuses_what_it_may_not_hold(folder: Path) -> None:
    """Type the two reported commands, on data small enough for seconds."""
    rng = np.random.default_rng(0)
    ingest((rng.normal(size=(3000, 4)), np.resize([-1, 1], 3000)), folder / "rows.zarr")
    ingest((rng.normal(size=(70, 5966)), np.resize([-1, 1], 70)), folder / "wide.zarr")
    pairs = "".join(f"{i},{i + 1},{1 - 2 * (i % 2)}\n" for i in range(2900))
    (folder / "pairs.csv").write_text(pairs)
    npkl = ["fit", "npkl", "--data", "rows.zarr", "--constraints", "pairs.csv", "--run", "npkl", "--driver-memory", "16MiB"]
    rules = ["fit", "rule-ensemble", "--data", "wide.zarr", "--run", "rules", "--driver-memory", "4MiB"]
    for words in (npkl, rules):
        command = start(words, folder)
        assert command.wait() == 5, f"{words[1]}: {command.messages}"
        assert "driver_memory" in command.messages and "--driver-memory" in command.messages, command.messages
    assert not (folder / "rules").exists(), "a refused run left its folder"
