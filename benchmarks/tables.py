"""Make the tables and plots of docs/benchmarks.md, docs/first-table.md and of the README from the runs kept in ``benchmarks/results``.

Run with ``python -m benchmarks.tables`` after a benchmark; ``--check`` only tells whether they are up to date, and ``--runs`` prints the
page of all runs, which the site makes for itself. What stands between ``<!-- made from results: NAME -->`` and ``<!-- end -->`` is written
anew, nothing else is touched.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import _plots
from benchmarks._first_table_page import tell_means, tell_run, tell_sets

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ("README.md", "docs/benchmarks.md", "docs/first-table.md")
BLOCK = re.compile(r"(<!-- made from results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
NOT_TIMED = {"__init__.py", "_harness.py", "_peers.py", "_mkl_peer.py", "_easymkl_peer.py", "_one_thread.py", "_plots.py", "tables.py"}

Record = dict[str, Any]


class Headline(NamedTuple):
    """One row of the README.

    Attributes
    ----------
    workload, peer
        What was done, and by whom else.
    file
        Name of the kept run.
    time, result
        What is shown of it: words with a place for each figure, and the names of the figures.
    is_short
        Whether the README shows it, too.
    """

    workload: str
    peer: str
    file: str
    time: tuple[str, ...]
    result: tuple[str, ...]
    is_short: bool = False


HEADLINES: tuple[Headline, ...] = (
    Headline(
        "10,000 x 500,000 sparse, 200 features; C of both sides, B and rounds of ours chosen",
        "LIBLINEAR l1-SVM",
        "fgm_sparse--fgm-on-sparse-data-10000-x-500000-b-20-t-10",
        ("{} of the whole task, {} of one fit", "whole task, FGM (CSC) : l1-SVM", "FGM (CSC) : one fit"),
        (
            "accuracy {}, {} after a refit of both; at the default C {}; of Zipf's columns {}, {} and {}",
            "accuracy: FGM minus l1-SVM",
            "refitted: FGM minus l1-SVM",
            "accuracy: FGM at its default C minus l1-SVM",
            "Zipf, accuracy: FGM minus l1-SVM",
            "Zipf, refitted: FGM minus l1-SVM",
            "Zipf, accuracy: FGM at its default C minus l1-SVM",
        ),
        is_short=True,
    ),
    Headline(
        "8,192 x 65,536 dense, 300 features",
        "l1-SVM on half of the columns",
        "fgm_dense_wide--fgm-on-dense-float32-data-8192-x-65536-b-30-t-10-c-10-0",
        ("{} of one fit's time", "FGM : l1-SVM of that width"),
        (
            "accuracy {}, the peer {} refitted ({} as it is)",
            "FGM: accuracy, mean of 3 seeds",
            "l1-SVM: refitted, mean of 3 seeds",
            "l1-SVM: accuracy, mean of 3 seeds",
        ),
    ),
    Headline(
        "4,000 groups of 10, 4,096 rows",
        "celer group lasso with one refit",
        "fgm_groups--fgm-on-groups-4096-x-40000-b-20-t-5-logistic",
        ("{} with one inner step, {} to a gap of 1e-3", "FGM, max_inner=1 : celer", "FGM to gap 1e-3 : celer"),
        (
            "accuracy above its refit by {}, {}",
            "accuracy: FGM, max_inner=1 minus celer refitted",
            "accuracy: FGM to gap 1e-3 minus celer refitted",
        ),
    ),
    Headline(
        "all products of 4.6 million features, 1,000,000 rows",
        "none that can be installed",
        "fgm_degree2_wide--fgm-on-all-degree-2-products-1000000-x-4600000-34-non-zeros-a-row-1-1e-13-candidates-b-10-t-10",
        ("{}", "seconds of a whole fit"),
        (
            "10^13 candidates, {} beside the data; {} of 10 planted products found",
            "extra memory of a fit",
            "planted products found, of 10",
        ),
        is_short=True,
    ),
    Headline(
        "SVMlight text, 10^8 non-zeros, 10^7 columns",
        "`load_svmlight_file`",
        "ingest_svmlight--svmlight-text-to-a-block-store",
        ("{} faster to parse", "parser against load_svmlight_file"),
        (
            "finished store at {} with two jobs ({} with one), in {}",
            "text to finished stripes, jobs=2",
            "text to finished stripes, jobs=1",
            "peak memory, jobs=2",
        ),
    ),
    Headline(
        "10^6 x 10^7 from disk, two workers of 1 GiB",
        "one epoch of `SGDClassifier` in memory",
        "fgm_out_of_core--fgm-from-a-store-of-1000000-x-10000000-b-20-t-10-local-2",
        ("{} for ten rounds of FGM", "FGM : SGD"),
        (
            "accuracy {} with {} features, SGD's {} with {}; peak of a worker {}",
            "FGM: accuracy",
            "FGM: features",
            "SGD: accuracy",
            "SGD: features",
            "greatest peak of a worker process",
        ),
        is_short=True,
    ),
    Headline(
        "15 re-weighted support vector machines, n = 3,000",
        '`SVC(kernel="precomputed")`',
        "svm_dual--kernel-duals-on-a-gram-matrix-in-memory",
        (
            "{} (C=1), {} (C=10)",
            "15 solves n=3000 C=1, warm float32, schedule : peer",
            "15 solves n=3000 C=10, warm float32, schedule : peer",
        ),
        (
            "dual values of the peer above by {} and {}, relative",
            "15 solves n=3000 C=1: largest relative lag of the dual at 1e-3",
            "15 solves n=3000 C=10: largest relative lag of the dual at 1e-3",
        ),
    ),
    Headline(
        "200 kernels of 2,000 rows, to a gap of 1e-3",
        "the same search around `SVC`; EasyMKL",
        "mkl_elastic--elastic-net-mkl-n-2000-200-kernels-v-0-5-c-1-0-gap-0-001",
        ("{}; {}", "ours : strong loop around SVC", "ours : EasyMKL"),
        ("upper bounds equal to {}", "upper bounds, relative difference"),
        is_short=True,
    ),
    Headline(
        "the same as 200 given float32 matrices, checks included",
        "the same search around `SVC`, without checks",
        "mkl_given--mkl-on-given-matrices-n-2000-200-float32-kernels-v-0-5-c-1-0-gap-0-001",
        ("{}", "given matrices : loop around SVC"),
        ("upper bounds equal to {}", "upper bounds, relative difference"),
    ),
    Headline(
        "91 to 793 kernels on six UCI sets, 20 splits",
        "the same outer loop around `SVC`",
        "mkl_thesis--uci-rows-of-the-thesis-heart-ionosphere-liver-pima-sonar-wdbc-20-splits",
        (
            "{} (ionosphere) to {} (wdbc) of its time a split",
            "ionosphere: ours : strong loop, median of paired splits",
            "wdbc: ours : strong loop, median of paired splits",
        ),
        (
            "v=0.5, per cent: heart {}, ionosphere {}, liver {}, pima {}, sonar {}, wdbc {}; all within the thesis' deviation or above",
            *(f"{name}, v=0.5: accuracy, per cent" for name in ("heart", "ionosphere", "liver", "pima", "sonar", "wdbc")),
        ),
    ),
    Headline(
        "1,000,000 x 160, groups of 10; 8,000 x 3,000",
        "celer group lasso",
        "group_lasso_batch--batch-group-lasso-1000000-x-160-and-8000-x-3000-groups-of-10",
        (
            "{}; {}, {}, with noise {}",
            "tall, alpha_max/50: ours : celer",
            "wide, alpha_max/10, noise 0.3: ours : celer",
            "wide, alpha_max/50, noise 0.3: ours : celer",
            "wide, alpha_max/50, noise 1: ours : celer",
        ),
        ("objective above celer's by {}, relative", "tall, alpha_max/50: objective of ours above that of celer, relative"),
        is_short=True,
    ),
    Headline(
        "20 tasks of 200 rows, 50 kernels, gap 1e-3",
        "a loop around `SVC` per task",
        "multitask_mkl--multiple-kernel-learning-for-many-tasks",
        (
            "{} (p=2), {} (p=6), {} (p=8.67)",
            "ours : loops around SVC, p=2",
            "ours : loops around SVC, p=6",
            "ours : loops around SVC, p=8.67",
        ),
        (
            "mean accuracy {}, {}, {} (tasks alone: {})",
            "mean accuracy, p=2",
            "mean accuracy, p=6",
            "mean accuracy, p=8.67",
            "loops around SVC, mean accuracy",
        ),
    ),
    Headline(
        "two planted conjunctions, 3,000 x 20",
        "RuleFit; RIPPER",
        "rules--rule-ensembles",
        ("{}; {}", "ours : RuleFit", "ours : RIPPER"),
        (
            "accuracy {} with {} rules ({} with {}; {} with {})",
            "accuracy on 5,000 rows",
            "rules",
            "RuleFit, accuracy",
            "RuleFit, rules",
            "RIPPER, accuracy",
            "RIPPER, rules",
        ),
        is_short=True,
    ),
    Headline(
        "groups among 42 tasks, 2^42 of them",
        "the thesis: 23 minutes",
        "latent_tasks--latent-groups-of-tasks",
        ("{} to {}", "planted 42 x 5, mu=1: median", "planted 42 x 15, mu=0.1: median"),
        ("certified over all groups to {}", "planted 42 x 15, mu=0.1: certified relative gap"),
    ),
    Headline(
        "selection path, 300 x 1,000",
        "pyHSICLasso",
        "kta_path--kernel-selection-path-300-x-1-000-and-800-x-100-000",
        ("{}", "ours : pyHSICLasso"),
        (
            "{} of 10 planted features (pyHSICLasso {})",
            "ours: planted among the 10 chosen",
            "pyHSICLasso: planted among the 10 chosen",
        ),
        is_short=True,
    ),
    Headline(
        "a stream of 100,000 x 1,000,000, settings of both sides by validation",
        "`SGDClassifier.partial_fit`; its one `fit`",
        "stream--stream-of-100000-x-1000000-100-non-zeros-a-row-batches-of-1000",
        (
            "{} x (rounds of many rows {} x) the rows a second of `partial_fit`",
            "rows/s, sparsest alike : partial_fit, alpha chosen",
            "rows/s, largest rounds alike : partial_fit, alpha chosen",
        ),
        (
            "accuracy above SGD's by {}, {}; the most accurate by {} at {} x",
            "accuracy, sparsest alike - SGD, alpha chosen",
            "accuracy, largest rounds alike - SGD, alpha chosen",
            "accuracy, most accurate - SGD, alpha chosen",
            "rows/s, most accurate : partial_fit, alpha chosen",
        ),
    ),
    Headline(
        "a kernel from pairs, 6,414 rows of Adult, features to kernel",
        "the same by `eigh`",
        "npkl_adult--non-parametric-kernels-on-adult",
        ("{}", "whole fit : the same by eigh, N=6414"),
        ("its squared norm equal to {}, relative", "relative error of ||A_+||_F^2"),
    ),
    Headline(
        "five Gram matrices of 30,000 rows, two workers of 1 GiB",
        "`rbf_kernel` by blocks of `dask.array`, `to_zarr`",
        "gram_distributed--5-gram-matrices-of-30000-rows-2-workers-of-1gib",
        ("{}", "build : peer"),
        (
            "peak of a worker {} (planned {}); the same bits after one is killed",
            "build: measured peak of a worker process",
            "build: planned peak of a worker process",
        ),
    ),
)

PEERS = {
    "fgm_degree2.py": '`PolynomialFeatures` and `LinearSVC(penalty="l1")`',
    "gram_distributed.py": "`rbf_kernel` by blocks of `dask.array`",
    "svm_dual.py": "`SVC`, `SVR` or `KernelRidge`",
}
"""Who is meant by programs whose figures say "peer"."""
QUIET_LOAD = 2.0
"""Load of a machine on which nothing else runs: the program itself, and a little."""


def kept_runs() -> list[tuple[str, Record]]:
    """Return (name of the file, record) of every kept run, by name."""
    return [(path.stem, json.loads(path.read_text())) for path in sorted(RESULTS.glob("*.json"))]


# -- docs/benchmarks-runs.md -----------------------------------------------------------------------------------------------


def page_of_runs(runs: list[tuple[str, Record]]) -> str:
    """Return the page of all runs; `docs/conf.py` writes it when the site is built."""
    return f"""# All benchmark runs

Every figure of every kept run. What matters most, and what was missed, is on [the first page](benchmarks.md).

Programs without a kept run:

{not_run(runs)}

## State of the rows

Every figure with a target, the verdict of its run, and the program that makes it. Where a load is named other work ran on the two
processors: seconds are then upper bounds, ratios of two programs hold as far as both met the same load (they alternate), processor time and
accuracies stand.

{state_of_rows(runs)}

## The runs

{whole_runs(runs)}
"""


def state_of_rows(runs: list[tuple[str, Record]]) -> str:
    """Return every figure that has a target, with its verdict, its program and its run, and the load if other work ran beside it."""
    rows = ["| workload | figure | value | target | verdict | run |", "|---|---|---|---|---|---|"]
    for name, record in runs:
        for figure, value, target, verdict in record["lines"]:
            if verdict:
                where = f"[{_run_text(record, 'peer' in figure)}](#{name})"
                rows.append(f"| {record['benchmark']} | {figure} | {value} | {target} | {verdict} | {where} |")
    return "\n".join(rows)


def _run_text(record: Record, names_peer: bool) -> str:
    """Return program and date of a run, who its peer is, and the load."""
    load = max(record["machine"]["load_at_start"], record["machine"]["load"])
    peer = f", beside {PEERS[record['program']]}" if names_peer and record["program"] in PEERS else ""
    return f"{Path(record['program']).stem}{peer}, {record['date']}" + (f", load {load:.0f}" if load > QUIET_LOAD else "")


def whole_runs(runs: list[tuple[str, Record]]) -> str:
    """Return the table of every kept run, with its notes, command, machine and versions."""
    return "\n\n".join(_section(name, record) for name, record in runs)


def _section(name: str, record: Record) -> str:
    machine = record["machine"]
    lines = [f"({name})=", f"### {record['benchmark']}", "", "| figure | value | target | verdict |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(line)} |" for line in record["lines"]]
    lines += ["", *(f"* {note}" for note in record["notes"])]
    load = f"load {machine['load_at_start']:.1f} … {machine['load']:.1f}"
    where = f"{machine['cpu']}, {machine['processors']} processors, {load}"
    lines.append(f"* `{current_command(record)}`, {record['date']}, commit {record['commit']}; {where}")
    lines.append("* " + ", ".join(f"{package} {version}" for package, version in record["versions"].items()))
    return "\n".join(lines)


def current_command(record: Record) -> str:
    """Return the command of a run as it is typed today: programs were moved into folders since some were run."""
    old, stem = record["command"], Path(record["program"]).stem
    folder = next((path.parent.name for path in RESULTS.parent.glob(f"*/{stem}.py")), None)
    return old if folder is None else re.sub(rf"python \S*{stem}\.py", f"python -m benchmarks.{folder}.{stem}", old)


def not_run(runs: list[tuple[str, Record]]) -> str:
    """Return the programs without a kept run."""
    known = {record["program"] for _, record in runs}
    missing = sorted(path.name for path in (ROOT / "benchmarks").glob("*/*.py") if path.name not in known | NOT_TIMED)
    return "\n".join(f"- `{name}`" for name in missing) or "- none"


# -- headlines -------------------------------------------------------------------------------------------------------------


def headlines(runs: list[tuple[str, Record]]) -> str:
    """Return the table of what matters most."""
    return _headline_rows(runs, HEADLINES)


def short(runs: list[tuple[str, Record]]) -> str:
    """Return the README's rows of it."""
    return _headline_rows(runs, [row for row in HEADLINES if row.is_short])


def _headline_rows(runs: list[tuple[str, Record]], headlines: Sequence[Headline]) -> str:
    kept = dict(runs)
    rows = ["| workload | peer | time | result |", "|---|---|---|---|"]
    for row in headlines:
        told = [_told(kept[row.file], words) for words in (row.time, row.result)]
        rows.append(f"| {row.workload} | {row.peer} | {' | '.join(told)} |")
    return "\n".join(rows)


def plot(runs: list[tuple[str, Record]]) -> str:
    """Return the times of the headlines over their peers' as a plot."""
    kept, rows = dict(runs), []
    for row in HEADLINES:
        shown = {figure: value for figure, value, *_ in kept[row.file]["lines"]}
        values = [ratio for figure in row.time[1:] if (ratio := _plots.ratio_of(shown[figure])) is not None]
        if values:
            rows.append((row.workload.partition(";")[0][:58], values))
    return _plots.ratios(rows)


def verdicts(runs: list[tuple[str, Record]]) -> str:
    """Return the targets met and missed by the folder of their programs as a plot."""
    counts: dict[str, list[int]] = {}
    for _, record in runs:
        folder = next((path.parent.name for path in RESULTS.parent.glob(f"*/{record['program']}")), "other")
        for *_, verdict in record["lines"]:
            if verdict:
                counts.setdefault(folder, [0, 0])[verdict == "MISSED"] += 1
    return _plots.verdicts([(folder.replace("_", "-"), *count) for folder, count in sorted(counts.items())])


def _told(record: Record, wanted: tuple[str, ...]) -> str:
    """Return the words ``wanted[0]`` with the figures named by the rest in their places."""
    shown = {figure: value for figure, value, *_ in record["lines"]}
    return wanted[0].format(*(_short(shown[figure]) for figure in wanted[1:]))


def _short(value: str) -> str:
    """Return ``"0.188 = 1/5.32 (cpu ...)"`` as ``"1/5.3"``, above one as ``"2.3 x"``, other figures without their range."""
    ratio = re.match(r"([\d.]+) = 1/([\d.]+)", value)
    if not ratio:
        return value.partition(" (")[0]
    share = float(ratio[1])
    return f"1/{float(ratio[2]):.{3 if share < 0.01 else 2}g}" if share < 1 else f"{share:.2g} x"


# -- pages -----------------------------------------------------------------------------------------------------------------

MADE: dict[str, Callable[[list[tuple[str, Record]]], str]] = {
    "headlines": headlines,
    "short": short,
    "plot": plot,
    "verdicts": verdicts,
    "first_table_means": tell_means,
    "first_table_sets": tell_sets,
    "first_table_run": tell_run,
}


def made_anew(page: str, runs: list[tuple[str, Record]]) -> str:
    """Return the text of a page with its blocks written anew."""
    return BLOCK.sub(lambda block: f"{block[1]}{MADE[block[2]](runs)}\n{block[3]}", page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where a page is not up to date")
    parser.add_argument("--runs", action="store_true", help="print the page of all runs")
    options, runs, stale = parser.parse_args(), kept_runs(), []
    if options.runs:
        print(page_of_runs(runs))
        return 0
    for path in (ROOT / name for name in PAGES):
        text = path.read_text()
        anew = made_anew(text, runs)
        if anew != text:
            stale.append(path.name)
            if not options.check:
                path.write_text(anew)
    state = "not up to date" if options.check else "written"
    print(f"{len(runs)} runs; {'all pages are up to date' if not stale else state + ': ' + ', '.join(stale)}")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
