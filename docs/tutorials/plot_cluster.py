"""
A cluster of workers, and the same bits
=======================================

More processes, more machines: whatever the cluster, a fit gives the same bits as in one process. So a cluster is only ever a question of
time and memory, never of what comes out. This page shows both on one machine, and what to type for many.
"""

# %%
# One word says where work runs
# -----------------------------
# ``cluster=None`` is this process. ``"local:2"`` starts two worker processes, for this fit alone, which nobody else can talk to.
import time

import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from gramplane import FGMClassifier, use_client
from gramplane.datasets import sparse_linear

data = sparse_linear(n=4000, d=100_000, nnz=80, relevant=60, n_test=1000, seed=0)
alone = FGMClassifier(B=10, max_rounds=5).fit(data.X, data.y)
began = time.perf_counter()
if (
    __name__ == "__main__"
):  # workers are processes: a script that starts them needs this line
    spread = FGMClassifier(B=10, max_rounds=5, cluster="local:2").fit(data.X, data.y)
    print(f"two workers, their start included: {time.perf_counter() - began:.1f} s")
    print(
        "the same coefficients, bit for bit:",
        np.array_equal(alone.coef_.toarray(), spread.coef_.toarray()),
    )

# %%
# A client you already have
# -------------------------
# Estimators take words, since they can be cloned. A Dask client that is open already is used within a block:
if __name__ == "__main__":
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as local,
        Client(local) as client,
        use_client(client),
    ):
        again = FGMClassifier(B=10, max_rounds=5).fit(data.X, data.y)
    print(
        "the same again:", np.array_equal(alone.coef_.toarray(), again.coef_.toarray())
    )

# %%
# A pass over the columns is what workers share; ``history_`` tells how much each round looked at, and how long it took.
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.3), layout="constrained")
history = alone.history_
left.bar(history["iteration"], history["bytes"] / 2**20, color="#0072B2")
left.set(
    xlabel="round", ylabel="MiB of columns looked at", title="Work that workers share"
)
right.bar(history["iteration"], history["seconds"], color="#E69F00")
right.set(xlabel="round", ylabel="seconds in one process", title="Time of a round")

# %%
# Rounds read columns, and columns can be dealt to workers; the small problem that is solved in between cannot. So a cluster pays where the
# table is large. This one fits a laptop, and the start of two processes takes longer than the whole fit. That is the honest picture of small
# data.
#
# Many machines
# -------------
#
# .. code-block:: sh
#
#    export DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=10
#    dask scheduler --scheduler-file sched.json
#    dask worker --scheduler-file sched.json --nworkers 8 --nthreads 1 --memory-limit 4GiB
#    gramplane fit fgm --data stores/train --run runs/first --cluster scheduler-file:sched.json
#
# All machines see the store under the same path or URL. A worker that dies costs its running tasks only; one that hangs is left out.
#
# What to try when it is bad
# --------------------------
# * **It is slower than one process**: the table is small, or tasks are. ``--dry-run`` tells tasks and bytes beforehand.
# * **"processors differ" is told**: machines of several types agree to the tolerance, not to the bit.
# * **It waits for ever**: it does not; after 300 seconds without a worker the run ends with exit code 4 and keeps its checkpoint.
# * **A worker runs out of memory**: fewer bytes per task; ingest with a smaller ``budget``, or give ``--worker-memory``.
