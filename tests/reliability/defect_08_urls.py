"""Defect 8: predictions for an object store became a local folder ``./s3:``, and Gram stores could not be made there."""

from __future__ import annotations

import os
from pathlib import Path

from tests.reliability.walks import walk
from tests.support.commands import gramplane
from tests.support.s3 import s3_server


@walk(8, "predictions and Gram stores reach an object store, a run is refused there by name, and nothing falls beside")
def far_places(folder: Path) -> None:
    text = "".join(f"{(-1) ** i} 1:{i % 7 + 1} 2:{i % 3 + 1} 3:{i * i % 5 + 1}\n" for i in range(40))
    with s3_server("b") as s3:
        s3.buckets["b"]["a.svm"] = text.encode()
        environment = s3.environment()
        steps = [
            (["ingest", "s3://b/a.svm", "store"], 0),
            (["fit", "fgm", "--data", "store", "--run", "run", "--set", "B=2", "--set", "max_rounds=2"], 0),
            (["predict", "run", "store", "s3://b/p.csv"], 0),
            (["gram", "store", "--kernels", "linear", "--out", "s3://b/grams"], 0),
            (["fit", "fgm", "--data", "store", "--run", "s3://b/run"], 2),
        ]
        for words, wanted in steps:
            code, told = gramplane(words, folder, **environment)
            assert code == wanted, (words, code, told)
        assert s3.buckets["b"]["p.csv"].startswith(b"row,prediction") and "grams/manifest.json" in s3.buckets["b"]
    assert sorted(os.listdir(folder)) == [".logs", "run", "store"]
