"""The sample report of the site: rules for the patients of "Five minutes on the command line", made while the site is built.

``python docs/make_sample.py`` takes the two pictures of it into ``docs/_static`` that the first page shows; it needs ``chromium``.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import tempfile
from pathlib import Path

from gramplane.datasets import patients
from gramplane.workflows.cli import main

PAGE = "sample_report.html"
COMMANDS = (
    "ingest patients.csv stores/train --target outcome --id-column patient --drop admitted --categorical zip --missing keep",
    "fit rule-ensemble --data stores/train --run runs/rules",
    "score runs/rules new.csv",
    "report runs/rules --title Patients",
)
THEMES = {"dark": 0, "light": 1}  # as Chromium counts them
WIDTH, HEIGHT = 480, 870


def write(folder: Path) -> Path:
    """Write the report that the commands write, as it is, into a folder."""
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place), contextlib.redirect_stderr(io.StringIO()) as said:
        patients().to_csv("patients.csv", "new.csv")
        with contextlib.redirect_stdout(said):
            codes = [main([*command.split(), "--quiet"]) for command in COMMANDS]
        if any(codes):
            raise RuntimeError(said.getvalue())
        shutil.copyfile("runs/rules/report.html", folder / PAGE)
    return folder / PAGE


def photograph(page: Path, theme: str) -> None:
    """Write a picture of the first screen of a page, in 32 colours and two points a pixel."""
    from PIL import Image

    picture = Path(__file__).parent / "_static" / f"sample_report_{theme}.png"
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=2", f"--window-size={WIDTH},{HEIGHT}"]
    options += [f"--blink-settings=preferredColorScheme={THEMES[theme]}", f"--screenshot={picture}"]
    subprocess.run(["chromium", *options, page.as_uri()], check=True, capture_output=True)
    Image.open(picture).convert("RGB").quantize(32, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        page = write(Path(folder))
        for theme in THEMES:
            photograph(page, theme)
