"""The state of the house: every figure of ``tests/house.py`` stays within its goal, or where it was left."""

import pytest

from tests.house import figures

FIGURES = figures()


@pytest.mark.parametrize("figure", [figure for figure in FIGURES if figure.goal is not None], ids=lambda figure: figure.what)
def test_the_house_stays_as_it_was_left(figure):
    limit = figure.goal if figure.limit is None else figure.limit
    assert figure.is_kept, f"{figure.what}: {figure.value:g}, at most {limit:g}: {figure.detail}"
