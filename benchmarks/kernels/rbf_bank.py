"""Ten Gaussian kernels of one data set, 4,096 x 50, against ten calls of ``sklearn.metrics.pairwise.rbf_kernel``.

Run with ``python -m benchmarks.kernels.rbf_bank``. gamma doubles from kernel to kernel (``--factor 4``: the widths double instead). The
bank is written into one array that is used again and again, as a solver does; a fresh array for every call is timed beside it.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from gramplane.kernels.grams.blocks import gram_block
from gramplane.kernels.grams.spec import KernelSpec

TARGETS = {"float64": 1 / 5, "float32": 1 / 8}
LARGEST_ERROR = 1e-6


def difference(bank: np.ndarray, data: np.ndarray, gammas: list[float]) -> float:
    """Return the greatest difference from the peer in float64, one kernel at a time."""
    return max(float(np.abs(kernel - rbf_kernel(data, gamma=gamma)).max()) for kernel, gamma in zip(bank, gammas))


def main() -> None:
    parser = bench.arguments(__doc__, n=4096, d=50, kernels=10, factor=2.0, seed=0)
    options = parser.parse_args()
    if options.tiny:
        options.n, options.reps = 300, 2
    exact = np.random.default_rng(options.seed).standard_normal((options.n, options.d)).astype(np.float32).astype(np.float64)
    # The middle kernel has entries of about exp(-1).
    gammas = [0.5 / options.d * options.factor ** (k - options.kernels // 2) for k in range(options.kernels)]
    specs = [KernelSpec("rbf", (("gamma", gamma),)) for gamma in gammas]
    report = bench.Report(f"{options.kernels} Gaussian kernels of {options.n} x {options.d}, gamma times {options.factor:g}", options)
    for name, target in TARGETS.items():
        data, bank = exact.astype(name), np.empty((options.kernels, options.n, options.n), dtype=name)

        def ours(data=data, bank=bank) -> None:
            gram_block(specs, data, dtype=bank.dtype, out=bank)

        def fresh(data=data, name=name) -> None:
            gram_block(specs, data, dtype=name)

        def theirs(data=data) -> None:
            for gamma in gammas:
                rbf_kernel(data, gamma=gamma)

        times = bench.alternate({"bank": ours, "fresh": fresh, "rbf_kernel": theirs}, options.reps)
        report.time(f"bank into one array, {name}", times["bank"])
        report.time(f"bank into a fresh array, {name}", times["fresh"])
        report.time(f"ten rbf_kernel, {name}", times["rbf_kernel"])
        report.ratio(f"bank : rbf_kernel, {name}", times["bank"], times["rbf_kernel"], target)
        report.ratio(f"fresh bank : rbf_kernel, {name}", times["fresh"], times["rbf_kernel"], None)
        report.value(f"greatest error, {name}", difference(bank, exact, gammas), f"<= {LARGEST_ERROR}")
        report.value(f"written, {name}", bank.nbytes / times["bank"].median / 1e9, unit=" GB/s")
    report.show()


if __name__ == "__main__":
    main()
