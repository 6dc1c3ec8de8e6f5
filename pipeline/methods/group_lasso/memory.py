"""Memory of the driver for a stream and for a batch. The memory of a batch determines its engine."""

from __future__ import annotations

import numpy as np

from ....storage import MemoryBlocks
from ....storage.ingest.text.svmlight import PIECE
from ....storage.layout import STRIPE_BYTES
from ...core.memory import Item, total_bytes
from ...passes.columns import column_sizes, entry_count, has_rows, rows_to_make
from .learners import LearnerFactory
from .moments_pass import Data, moment_bytes
from .text import TextData

GRAM_COLUMNS = 512  # up to so many columns a squared loss is solved on the moments of all of them
FIRST_GROUPS = 20  # groups that join the empty working set
FEWER_COLUMNS = "a larger lam, or algorithm='da'"  # what helps where the columns of a working set are too many


def stream_items(learners: LearnerFactory, data: Data | TextData, fits: int = 1) -> tuple[Item, ...]:
    """Return the memory of the driver for a stream: the learners and their copy in a checkpoint, the weights of the features, arrays over
    all rows, and the rows in transit.
    """
    machines = learners.n_machines
    text = "a piece of text and its rows", 8 * PIECE
    return (
        ("sums of the learner, and what a checkpoint keeps of them", 3 * fits * learners.state_bytes),
        ("weights as they are measured", 16 * learners.penalty.n_features * machines),
        ("labels and weights of rows, decision values", (8 * machines * fits + 32) * data.n_rows),
        *((text,) if isinstance(data, TextData) else _row_items(data)),
    )


def _row_items(data: Data) -> tuple[Item, ...]:
    """Return the memory of the driver for rows in transit: rows that are made from columns, and a block while it is read and learned."""
    if isinstance(data, MemoryBlocks):
        return ()
    if not has_rows(data):
        # Rows that are made are cut into blocks of as many bytes as those of a store, and of one row at least.
        block = max(min(entry_count(data), STRIPE_BYTES // data.meta.itemsize), data.n_cols)
        return rows_to_make(data), ("a block of rows as it is learned", 40 * block)
    return (("a block of rows as it is read and learned", 4 * max((ref.nbytes for ref in data.row_blocks()), default=0)),)


def working_set_columns(data: Data, features: np.ndarray) -> Item:
    """Return the memory of the columns of a working set, counting both the columns as fetched and the solver's copy."""
    nbytes = 16 * data.n_rows * len(features) if data.meta.kind == "dense" else 2 * int(column_sizes(data, features).sum())
    return f"{len(features)} columns of a working set", nbytes


def batch_items(data: Data, n_machines: int, engine: str) -> tuple[Item, ...]:
    """Return the memory of the driver for a batch: arrays over features (weights, slopes), arrays over rows, and either the moments or the
    columns of the working set. The working set may grow: its initial columns are counted here, and every larger set is checked later.
    """
    n, d = data.n_rows, data.n_cols
    weights = "weights, slopes and norms of the groups", 40 * d * n_machines
    items = weights, ("labels, costs, duals and decision values", 64 * n * n_machines)
    if engine == "gram":
        return (*items, ("second moments of the rows, and a centred copy", 2 * moment_bytes(data, n_machines)))
    return (*items, working_set_columns(data, np.arange(d if engine == "fista" else min(d, FIRST_GROUPS))))


def resolve_engine(engine: str, loss: str, data: Data, n_machines: int, driver_memory: int) -> str:
    """Return the engine that will run, with ``"auto"`` resolved. Raises ValueError for ``"gram"`` with a loss other than squared."""
    if engine == "gram" and loss != "squared":
        raise ValueError(f"engine='gram' solves the squared loss; the loss is {loss!r}: use 'auto'")
    if engine != "auto":
        return engine
    is_held = total_bytes(batch_items(data, n_machines, "gram")) <= driver_memory
    return "gram" if loss == "squared" and data.n_cols <= GRAM_COLUMNS and is_held else "working_set"
