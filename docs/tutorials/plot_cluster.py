"""
Use a cluster of workers
========================

A fit on several workers gives the same result as in one process, to the last
bit. So a cluster changes time and memory, not the model. This page shows it on
one computer, with the commands for many.
"""

# %%
# Say where the work runs
# -----------------------
# ``cluster=None`` is this process. ``"local:2"`` starts two worker processes
# for this fit; nothing else can connect to them.

# sphinx_gallery_parallel = False
import time

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from gramplane import FGMClassifier, use_client
from gramplane.datasets import sparse_linear

data = sparse_linear(
    n=4000, d=100_000, nnz=80, relevant=60, n_test=1000, seed=0
)
alone = FGMClassifier(B=10, max_rounds=5).fit(data.X, data.y)
if __name__ == "__main__":  # needed by scripts that start processes
    began = time.perf_counter()
    spread = FGMClassifier(B=10, max_rounds=5, cluster="local:2")
    spread.fit(data.X, data.y)
    print(f"two workers: {time.perf_counter() - began:.1f} s with their start")
    same = np.array_equal(alone.coef_.toarray(), spread.coef_.toarray())
    print(f"equal to the last bit: {'yes' if same else 'no'}")

# %%
# Use a Dask client that is open
# ------------------------------
# Within ``use_client``, fits use a client that you already have:
if __name__ == "__main__":
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
        ) as local,
        Client(local) as client,
        use_client(client),
    ):
        again = FGMClassifier(B=10, max_rounds=5).fit(data.X, data.y)
    same = np.array_equal(alone.coef_.toarray(), again.coef_.toarray())
    print(f"equal to the last bit: {'yes' if same else 'no'}")

# %%
# What a cluster makes faster
# ---------------------------
# Workers share the passes over the columns. ``history_`` has the amount and
# the time of each round:
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.3), layout="constrained"
)
history = alone.history_
left.bar(history["iteration"], history["bytes"] / 2**20, color="#0072B2")
left.set(
    xlabel="round", ylabel="MiB of columns read", title="Shared by workers"
)
right.bar(history["iteration"], history["seconds"], color="#E69F00")
right.set(
    xlabel="round", ylabel="seconds in one process", title="Time of a round"
)

# %%
# The small problem between two passes runs on one processor. So a cluster pays
# off for large tables. This table fits a laptop: starting two processes takes
# longer than the whole fit.
#
# Use many computers
# ------------------
#
# .. code-block:: sh
#
#    export DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=10
#    dask scheduler --scheduler-file sched.json
#    dask worker --scheduler-file sched.json --nworkers 8 --nthreads 1 \
#        --memory-limit 4GiB
#    gramplane fit fgm --data stores/train --run runs/first \
#        --cluster scheduler-file:sched.json
#
# All computers must see the store under the same path or URL. If a worker
# dies, its tasks run elsewhere; one that hangs is left out.
#
# What to try when it is bad
# --------------------------
# * **It is slower than one process**: the table is small, or its tasks are.
#   ``--dry-run`` shows tasks and bytes beforehand.
# * **A warning says "processors differ"**: on different types of processor,
#   results agree to within the solver's tolerance.
# * **No worker answers**: after 300 seconds the run ends with exit code 4 and
#   keeps its checkpoint. Give the command again.
# * **A worker runs out of memory**: ingest with a smaller ``budget``, or raise
#   ``--worker-memory``.
