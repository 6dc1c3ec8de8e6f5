"""What a killed driver left in the temporary folder goes with the next start; what Ctrl-C says before the first round holds afterwards."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.reliability.defect_13_lost_workers import PARAMS, begun, fit_words
from tests.reliability.walks import walk
from tests.support.commands import gramplane, start


def made(folder: Path) -> list[Path]:
    """Folders of gramplane in the temporary folder of a walk."""
    return [path for path in (folder / "tmp").iterdir() if path.name.startswith("gramplane-")]


@walk(16, "drivers killed at random moments, in all places where a folder is made, leave nothing after the next start", quick=False)
def swept_at_random(folder: Path) -> None:
    store, _ = begun(folder)
    (folder / "tmp").mkdir()
    rng = random.Random(16)
    for trial in range(12):
        command = start([*fit_words(store, folder / f"run-{trial}", PARAMS), "--cluster", "local:2"], folder, TMPDIR=str(folder / "tmp"))
        time.sleep(rng.uniform(0.5, 9.0))
        command.kill()
        assert len(made(folder)) <= 1
        if trial % 3 == 2:
            assert gramplane(fit_words(store, folder / f"next-{trial}", PARAMS), folder, TMPDIR=str(folder / "tmp"))[0] == 0
            assert made(folder) == []
