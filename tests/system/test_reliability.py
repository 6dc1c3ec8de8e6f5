"""Every walk of ``python -m tests.reliability defects``, collected as slow tests (the gate walks the quick ones by the command itself)."""

import pytest

from tests.reliability.walks import Skipped, every_walk


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("item", every_walk(), ids=lambda item: f"{item.number}-{item.title.replace(' ', '-')}")
def test_no_defect_comes_back(item, tmp_path):
    try:
        item.steps(tmp_path)
    except Skipped as reason:
        pytest.skip(str(reason))
