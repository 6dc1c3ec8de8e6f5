"""Glossary: the meaning of headings and values in results, from ``figures.txt`` and from methods of other packages."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

_OF_SCORES = {
    " over the folds": "Mean over the folds of tune at the best setting, as scikit-learn scores it: larger is better.",
    "_deviation": "Standard deviation of this score over the folds.",
    "_folds": "This score on every fold.",
}
"""Explanations of headings that begin with the name of a score, by the rest of the heading."""


@cache
def glossary() -> Mapping[str, str]:
    """Return the meaning of every heading and stop reason. The key of a stop reason begins with "stop", such as ``stop tol``."""
    from ...pipeline.registry import METHODS

    return {**{name: meaning for info in METHODS.values() for name, meaning in info.charts.glossary.items()}, **_lines()}


@cache
def _lines() -> dict[str, str]:
    lines = resources.files(__package__ or "").joinpath("figures.txt").read_text("utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def explain_heading(heading: str) -> str:
    """Return the meaning of a heading; ``""`` if it has none. ``weight[a]`` has the meaning of ``weight``; a heading such as
    ``seconds_solve`` is explained as a part of the time of a round.
    """
    name = re.sub(r"\[.*\]$", "", heading, flags=re.DOTALL)
    if name in glossary():
        return glossary()[name]
    for ending, meaning in _OF_SCORES.items():
        if name.endswith(ending):
            return meaning
    return f"Seconds of the part {name.removeprefix('seconds_')!r} of the round." if name.startswith("seconds_") else ""


def stop_reason(stop: str) -> str:
    """Return the meaning of a stop reason, or the reason itself if it is unknown."""
    return _lines().get(f"stop {stop}", stop)


def stop_text(stop: object) -> str:
    """Return a stop reason with its meaning."""
    meaning = stop_reason(str(stop or ""))
    return meaning if meaning == str(stop or "") else f"{stop}: {meaning}"


def words(headings: Iterable[str]) -> list[tuple[str, str]]:
    """Return ``(heading, meaning)`` pairs of the headings that have a meaning, in alphabetical order; ``weight[a]`` and ``weight[b]`` count
    as one.
    """
    named = {re.sub(r"\[.*\]$", "[…]", name, flags=re.DOTALL): explain_heading(name) for name in headings}
    return [(name, meaning) for name, meaning in sorted(named.items()) if meaning]
