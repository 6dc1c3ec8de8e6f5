"""What the driver holds of a stream, and of a batch; which engine a batch takes follows from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....storage import BlockStore, MemoryBlocks
from ....storage.ingest.text.row_text import PIECE
from ....storage.layout import STRIPE_BYTES
from ...core.memory import Item, total_bytes
from ...passes.columns import column_sizes, entry_count
from ...passes.rows import MADE, MADE_SPARSE, has_rows, rows_to_make
from ...records.holdings import Held
from .learners import LearnerFactory
from .moments_pass import moment_bytes
from .text import TextData

Data = BlockStore | MemoryBlocks

GRAM_COLUMNS = 512  # up to so many columns a squared loss is solved on the moments of all of them
FIRST_GROUPS = 20  # groups that join the empty working set
FEWER_COLUMNS = "a larger lam, or algorithm='da'"  # what helps where the columns of a working set are too many
SUMS = Held("sums of the learner, and what a checkpoint keeps of them", "3 s", "s bytes of one state: `state_bytes` of the plan")
STREAM_WEIGHTS = Held("weights as they are measured", "16 d T")
STREAM_VECTORS = Held("labels and weights of rows, decision values", "(8 T + 32) n")
TEXT = Held("a piece of text and its rows", f"{8 * PIECE}", "of a text that is read once")
LEARNED = Held("a block of rows as it is learned", "40 entries", "of the block; where rows were made")
READ = Held("a block of rows as it is read and learned", "4 stored", "`--layout both`")

WEIGHTS = Held("weights, slopes and norms of the groups", "40 d T")
VECTORS = Held("labels, costs, duals and decision values", "64 n T")
MOMENTS = Held("second moments of the rows, and a centred copy", "16 (d + T + 1)^2", "squared loss, few columns: `engine: gram`")
COLUMNS = Held("columns of a working set", "2 stored", "other losses, or many columns; in float64, as fetched and as held")

HELD = (SUMS, STREAM_WEIGHTS, STREAM_VECTORS, TEXT, MADE, MADE_SPARSE, LEARNED, READ, WEIGHTS, VECTORS, MOMENTS, COLUMNS)


def stream_holdings(learners: LearnerFactory, data: Data | TextData, fits: int = 1) -> tuple[Item, ...]:
    """Return what the driver holds: the learners and the copy a checkpoint keeps, weights of T machines, rows as they pass."""
    T, d = learners.n_machines, learners.penalty.n_features
    vectors = STREAM_VECTORS.of(n=data.n_rows, T=T * fits)
    holdings = SUMS.of(s=fits * learners.state_bytes), STREAM_WEIGHTS.of(d=d, T=T), vectors
    return (*holdings, TEXT.of()) if isinstance(data, TextData) else (*holdings, *_row_holdings(data))


def _row_holdings(data: Data) -> tuple[Item, ...]:
    """Return what the driver holds of rows as they pass: those that had to be made, and a block as it is read and as it is learned."""
    if isinstance(data, MemoryBlocks):
        return ()
    if not has_rows(data):
        # Rows that are made are cut into blocks of as many bytes as those of a store, and of one row at least.
        block = max(min(entry_count(data), STRIPE_BYTES // data.meta.itemsize), data.n_cols)
        return rows_to_make(data), LEARNED.of(entries=block)
    return (READ.of(stored=max((ref.nbytes for ref in data.row_blocks()), default=0)),)


def working_set_columns(data: Data, features: np.ndarray) -> Item:
    """Return what the columns of a working set take: as they are fetched and as they are held."""
    nbytes = 16 * data.n_rows * len(features) if data.meta.kind == "dense" else 2 * int(column_sizes(data, features).sum())
    return replace(COLUMNS, what=f"{len(features)} {COLUMNS.what}").taking(nbytes)


def batch_holdings(data: Data, n_machines: int, engine: str) -> tuple[Item, ...]:
    """Return what the driver holds of T machines: weights and slopes, vectors, and moments or the columns of a working set. How many
    columns join shows only along the way: counted are those of the first set, and each set that grows is checked.
    """
    n, d = data.n_rows, data.n_cols
    holdings = WEIGHTS.of(d=d, T=n_machines), VECTORS.of(n=n, T=n_machines)
    if engine == "gram":
        return (*holdings, MOMENTS.taking(2 * moment_bytes(data, n_machines)))
    return (*holdings, working_set_columns(data, np.arange(d if engine == "fista" else min(d, FIRST_GROUPS))))


def resolve_engine(engine: str, loss: str, data: Data, n_machines: int, driver_memory: int) -> str:
    """Return the engine that will run, ``"auto"`` resolved. Raises ValueError: ``"gram"`` for another loss than the squared one."""
    if engine == "gram" and loss != "squared":
        raise ValueError(f"engine='gram' solves the squared loss; the loss is {loss!r}: use 'auto'")
    if engine != "auto":
        return engine
    is_held = total_bytes(batch_holdings(data, n_machines, "gram")) <= driver_memory
    return "gram" if loss == "squared" and data.n_cols <= GRAM_COLUMNS and is_held else "working_set"
