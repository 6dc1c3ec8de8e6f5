"""SVMlight text to a block store: speed of the parser against scikit-learn's loader, of the whole ingest, and its memory.

    python benchmarks/ingest_svmlight.py                            a small run
    python benchmarks/ingest_svmlight.py --nnz 1e8 --cols 1e7       the row of the performance table

Every timed step runs in a process of its own, so that its peak of resident memory is its own; the peak of a process that only imports the
library is printed beside it. Kernels are compiled before (``--cold`` shows what that costs).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numba
import numpy as np

_STEPS = ("import", "parse", "peer", "ingest", "ingest-binary")


@numba.njit(cache=True)
def _put_int(out, at, value):
    digits, rest = 1, value // 10
    while rest:
        digits, rest = digits + 1, rest // 10
    for k in range(digits - 1, -1, -1):
        out[at + k] = 48 + value % 10
        value //= 10
    return at + digits


@numba.njit(cache=True)
def write_rows(rng, n_rows, per_row, n_cols, decimals, out):
    """Rows of text with columns of falling popularity and values 0.ddd; bytes written and entries."""
    at, nnz = 0, 0
    scale = 10**decimals
    for _ in range(n_rows):
        out[at] = 43 if rng.random() < 0.5 else 45
        out[at + 1] = 49
        at += 2
        draws = np.empty(per_row, np.int64)
        for k in range(per_row):
            u = rng.random()
            draws[k] = np.int64(n_cols * u * u * u) if k % 2 else np.int64(n_cols * u)
        draws.sort()
        previous = -1
        for col in draws:
            if col == previous:
                continue
            previous = col
            out[at] = 32
            at = _put_int(out, at + 1, col + 1)
            out[at], out[at + 1], out[at + 2] = 58, 48, 46
            value = 1 + np.int64(rng.random() * (scale - 1))
            for k in range(decimals - 1, -1, -1):
                out[at + 3 + k] = 48 + value % 10
                value //= 10
            at += 3 + decimals
            nnz += 1
        out[at] = 10
        at += 1
    return at, nnz


def generate(path, nnz, n_cols, *, per_row=100, decimals=4, seed=0):
    """Write about ``nnz`` entries of SVMlight text; the entries written."""
    rng, step = np.random.default_rng(seed), 10_000
    buffer = np.empty(step * (3 + per_row * (len(str(n_cols)) + 4 + decimals)), np.uint8)
    total, rows = 0, max(1, nnz // per_row)
    with open(path, "wb") as file:
        for lo in range(0, rows, step):
            used, written = write_rows(rng, min(step, rows - lo), per_row, n_cols, decimals, buffer)
            file.write(buffer[:used].data)
            total += written
    return total


def parse_only(path, budget):
    """Parse and throw away; entries and seconds."""
    from gramplane.storage.ingest.labels import Target
    from gramplane.storage.ingest.options import Options
    from gramplane.storage.ingest.text import SvmlightSource

    parser = SvmlightSource(path).parser(Options(budget=budget), Target())
    start, nnz = time.perf_counter(), 0
    with open(path, "rb", buffering=0) as file:
        for block, _, _ in parser.blocks(file, int):
            nnz += len(block["cols"])
    return {"seconds": time.perf_counter() - start, "nnz": nnz, "bytes": os.path.getsize(path)}


def peer(path, limit):
    """scikit-learn's loader on the first ``limit`` bytes."""
    from sklearn.datasets import load_svmlight_file

    with open(path, "rb") as file:
        text = file.read(limit)
    part = Path(path).with_suffix(".head")
    part.write_bytes(text[: text.rfind(b"\n") + 1])
    start = time.perf_counter()
    found, _ = load_svmlight_file(str(part), zero_based=False)
    seconds = time.perf_counter() - start
    nbytes = part.stat().st_size
    part.unlink()
    return {"seconds": seconds, "nnz": int(found.nnz), "bytes": nbytes}


def whole(path, store, budget, jobs):
    """Text to finished stripes, by phase."""
    from gramplane.storage.ingest import ingest

    start, phases = time.perf_counter(), {}

    def progress(done, total, phase):
        phases[phase] = time.perf_counter() - start

    made = ingest(path, store, budget=budget, jobs=jobs, overwrite=True, progress=progress)
    seconds = time.perf_counter() - start
    nnz = int(made.column_table("counts").sum(dtype=np.int64))
    ends = dict(sorted(phases.items(), key=lambda item: item[1]))
    return {"seconds": seconds, "nnz": nnz, "bytes": os.path.getsize(path), "phase_ends": ends, "cols": made.meta.n_cols}


def from_binary(path, store, budget):
    """Binary rows to finished stripes: the whole ingest without its reading phase."""
    found = whole(path, store, budget, 1)
    found["seconds"] -= found["phase_ends"]["read"]
    return found


def warm(step, args):
    """Load the compiled kernels and the peer before anything is timed."""
    small = f"{args.file}.warm"
    generate(small, 1000, 100)
    parse_only(small, args.budget)
    if step == "peer":
        peer(small, 1 << 20)
    whole(small, f"{args.store}.warm", args.budget, 1)


def run_step(step, args):
    """Run one step in this process; its figures with the peak of resident memory."""
    import resource

    import gramplane.storage.ingest

    assert gramplane.storage.ingest.ingest
    if step != "import" and not args.cold:
        warm(step, args)
    steps = {
        "import": lambda: {},
        "parse": lambda: parse_only(args.file, args.budget),
        "peer": lambda: peer(args.file, args.peer_bytes),
        "ingest": lambda: whole(args.file, args.store, args.budget, args.jobs),
        "ingest-binary": lambda: from_binary(args.file, args.store, args.budget),
    }
    found = steps[step]()
    found["peak_rss"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return found


def measure(step, args):
    """Run one step in a fresh process."""
    options = [f"--{name}={getattr(args, name.replace('-', '_'))}" for name in ("file", "store", "budget", "jobs", "peer-bytes")]
    options += ["--cold"] if args.cold else []
    done = subprocess.run([sys.executable, __file__, "--step", step, *options], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(results):
    """Print the table."""
    for step, found in results.items():
        rate = f"{found['bytes'] / found['seconds'] / 1e6:8.0f} MB/s {found['nnz'] / found['seconds'] / 1e6:7.2f} M nnz/s" if "nnz" in found else ""
        print(f"{step:14s} {found.get('seconds', 0):8.2f} s {rate:34s} peak {found['peak_rss'] / 2**20:6.0f} MiB  {found.get('phase_ends', '')}")
    if "peer" in results and "parse" in results:
        ours, theirs = (results[name]["bytes"] / results[name]["seconds"] for name in ("parse", "peer"))
        print(f"parser against load_svmlight_file: {ours / theirs:.1f}x")


def main(argv=None):
    """Command line; the results, for the tests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nnz", type=float, default=3e5)
    parser.add_argument("--cols", type=float, default=1e5)
    parser.add_argument("--per-row", type=int, default=100)
    parser.add_argument("--budget", type=int, default=256 << 20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--peer-bytes", type=int, default=64 << 20)
    parser.add_argument("--steps", default=",".join(_STEPS))
    parser.add_argument("--folder", default=None, help="where the text, scratch and store go")
    parser.add_argument("--cold", action="store_true", help="start from an empty cache of compiled kernels")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.step:
        print(json.dumps(run_step(args.step, args)))
        return {}
    folder = tempfile.mkdtemp(prefix="gramplane-bench-", dir=args.folder)
    try:
        return _measure_all(args, Path(folder))
    finally:
        shutil.rmtree(folder)


def _measure_all(args, folder):
    args.file, args.store = str(folder / "data.svm"), str(folder / "store")
    if args.cold:
        os.environ["NUMBA_CACHE_DIR"] = str(folder / "numba")
    start = time.perf_counter()
    nnz = generate(args.file, int(args.nnz), int(args.cols), per_row=args.per_row)
    size = os.path.getsize(args.file)
    print(f"{nnz} entries, {size / 1e6:.0f} MB of text, generated in {time.perf_counter() - start:.1f} s; jobs={args.jobs}")
    results = {step: measure(step, args) for step in args.steps.split(",")}
    report(results)
    return results


if __name__ == "__main__":
    main()
