"""What the driver holds while rules are learnt, from the number of propositions."""

from __future__ import annotations

from ..records.config_rules import RuleConfig
from ..records.holdings import Holding

REMEDY = "choose fewer columns, n_thresholds or max_rules"
"""What helps where they are too many."""


def most_propositions(config: RuleConfig, d: int, n: int) -> int:
    """Return the most propositions that d numeric columns of n rows may give: two a cut, and one for missing values."""
    return d * (2 * min(config.n_thresholds, max(n - 1, 1)) + 1)


def driver_held(config: RuleConfig, p: int, n: int, machines: int) -> tuple[Holding, ...]:
    """Return what the driver holds of p propositions over n rows, with a hull of ``max_rules`` conjunctions."""
    words, most = -(-n // 64), config.max_rules
    return (
        Holding("propositions as bits, while equal ones are dropped, and in the order of a search", "32 p n/64", 32 * p * words),
        Holding("pairs of propositions as bits", "p^2/8", p * (-(-p // 64)) * 8),
        Holding("names of the hull, one bit or byte for each proposition", "1.2 p W", 9 * p * most // 8),
        Holding("the hull's conjunctions on the rows", "2 n W", 2 * n * most),
        Holding("Newton matrices of the hull", "24 W^2", 24 * most * most),
        Holding("labels, costs and multipliers of the machines", "64 n T", 64 * n * machines),
    )
