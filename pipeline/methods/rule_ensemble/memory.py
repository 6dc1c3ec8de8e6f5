"""What the driver holds while rules are learnt, from the number of propositions."""

from __future__ import annotations

from ....kernels.rules.bits import MAX_UNPACKED_BYTES
from ...records.holdings import Held, Holding
from .config import RuleConfig

REMEDY = "choose fewer columns, n_thresholds or max_rules"
"""What helps where they are too many."""


BITS = Held(
    "propositions as bits, while equal ones are dropped, and in the order of a search", "6 p w", "p propositions; w = n/8, in whole words"
)
PAIRS = Held("pairs of propositions as bits", "p^2/8")
NAMES = Held("names of the hull, one bit or byte for each proposition", "9/8 p W", "W = `max_rules`")
ON_ROWS = Held("the hull's conjunctions on the rows, and copies of them", "3 n W")
NEWTON = Held("Newton matrices of the hull", "24 W^2")
VECTORS = Held("labels, costs and multipliers of the machines", "64 n T")
VALUES = Held("columns of the rules, as fetched and side by side", "16 n c", "c = min(d, W)")
UNPACKED_SOME = Held("propositions unpacked, some at a time", "9 p n", f"{2 * MAX_UNPACKED_BYTES >> 20} MiB at most")

HELD = (BITS, PAIRS, NAMES, ON_ROWS, NEWTON, VECTORS, VALUES, UNPACKED_SOME)
"""What the driver holds."""


def most_propositions(config: RuleConfig, d: int, n: int) -> int:
    """Return the most propositions that d numeric columns of n rows may give: two a cut, and one for missing values."""
    return d * (2 * min(config.n_thresholds, max(n - 1, 1)) + 1)


def driver_held(config: RuleConfig, p: int, n: int, d: int, machines: int) -> tuple[Holding, ...]:
    """Return what the driver holds of p propositions over n rows of d columns, with a hull of ``max_rules`` conjunctions."""
    word, hull = 8 * -(-n // 64), config.max_rules
    return (
        BITS.of(p=p, w=word),
        PAIRS.taking(p * 8 * -(-p // 64)),
        NAMES.of(p=p, W=hull),
        ON_ROWS.of(n=n, W=hull),
        NEWTON.of(W=hull),
        VECTORS.of(n=n, T=machines),
        VALUES.of(n=n, c=min(d, hull)),
        UNPACKED_SOME.taking(min(9 * p * n, 2 * MAX_UNPACKED_BYTES)),
    )
