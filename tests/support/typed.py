"""Commands typed in this process, and their last line as a record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gramplane.workflows.cli import main


def result(words: Sequence[object], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    """Run a command with ``--json``, see that it ends with ``code``, and return the record on the last line of its output."""
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.rstrip("\n").rpartition("\n")[2])
