"""Make the tables and plots of docs/benchmarks.md and of the README from the runs kept in ``benchmarks/results``.

Run with ``python -m benchmarks.tables`` after a benchmark; ``--check`` only tells whether they are up to date, and ``--runs`` prints
all runs. What stands between ``<!-- made from results: NAME -->`` and ``<!-- end -->`` is written
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

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ("README.md", "docs/benchmarks.md")
DEFAULTS = "first_table--a-stranger-s-first-table"
BLOCK = re.compile(r"(<!-- made from results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
FIGURE = re.compile(r"\{([^{}|]+(?:\|\|[^{}|]+)*?)(?: \| (\w+))?\}")
PROGRAM = re.compile(r"^@bench\.program\((?:.|\n)*?^def (\w+)\(report", re.MULTILINE)

Record = dict[str, Any]


class Headline(NamedTuple):
    """One comparison: a point of the plot, and a row of README and docs/benchmarks.md where it is short.

    ``workload`` and ``peer`` say what was done, and by whom else; ``file`` is the name of the kept run; ``time`` and ``result`` are words
    with names of its figures in braces, each with what it is written as (`FORMS`) after a bar.
    """

    workload: str
    peer: str
    file: str
    time: str
    result: str
    is_short: bool = False


HEADLINES: tuple[Headline, ...] = (
    Headline(
        "10,000 × 500,000 sparse, keep 200 features, C tuned for both",
        "LIBLINEAR l1-SVM",
        "fgm_sparse--fgm-on-sparse-data-10000-x-500000-b-20-t-10",
        "{whole task, FGM (CSC) : l1-SVM | speed}; {FGM (CSC) : one fit | speed} for one fit",
        "accuracy {accuracy: FGM minus l1-SVM | points}; {refitted: FGM minus l1-SVM | points} when both are refitted; {accuracy: FGM at "
        "its default C minus l1-SVM | points} at the default C ({Zipf, accuracy: FGM at its default C minus l1-SVM | points} on "
        "Zipf-distributed columns)",
        is_short=True,
    ),
    Headline(
        "8,192 × 65,536 dense, keep 300 features",
        "l1-SVM on half of the columns",
        "fgm_dense_wide--fgm-on-dense-float32-data-8192-x-65536-b-30-t-10-c-10-0",
        "{FGM : l1-SVM of that width | speed} for one fit",
        "accuracy {FGM: accuracy, mean of 3 seeds | percent} (l1-SVM: {l1-SVM: refitted, mean of 3 seeds | percent} refitted, {l1-SVM: "
        "accuracy, mean of 3 seeds | percent} as fitted)",
    ),
    Headline(
        "4,096 rows, 4,000 groups of 10 columns",
        "celer group lasso with one refit",
        "fgm_groups--fgm-on-groups-4096-x-40000-b-20-t-5-logistic",
        "{FGM, max_inner=1 : celer | speed} with one inner step; {FGM to gap 1e-3 : celer | speed} to a gap of 10⁻³",
        "accuracy {accuracy: FGM, max_inner=1 minus celer refitted | points}; {accuracy: FGM to gap 1e-3 minus celer refitted | points}",
    ),
    Headline(
        "all products of two of 4.6 million features, 1,000,000 rows",
        "no installable peer found",
        "fgm_degree2_wide--fgm-on-all-degree-2-products-1000000-x-4600000-34-non-zeros-a-row-1-1e-13-candidates-b-10-t-10",
        "{seconds of a whole fit}",
        "10¹³ candidates in {extra memory of a fit} beside the data; {planted products found, of 10} of 10 planted products found",
        is_short=True,
    ),
    Headline(
        "SVMlight text, 10⁸ non-zeros, 10⁷ columns",
        "`load_svmlight_file`",
        "ingest_svmlight--svmlight-text-to-a-block-store",
        "{parser against load_svmlight_file | times} faster to parse",
        "store finished at {text to finished stripes, jobs=2} with two jobs ({text to finished stripes, jobs=1} with one), in "
        "{peak memory, jobs=2}",
    ),
    Headline(
        "10⁶ × 10⁷ from disk, ten rounds, two workers of 1 GiB",
        "one epoch of `SGDClassifier` in memory",
        "fgm_out_of_core--fgm-from-a-store-of-1000000-x-10000000-b-20-t-10-local-2",
        "{FGM : SGD | speed}",
        "accuracy {FGM: accuracy | percent} with {FGM: features | count} features (SGD: {SGD: accuracy | percent} with {SGD: features | "
        "count}); a worker peaks at {greatest peak of a worker process}",
        is_short=True,
    ),
    Headline(
        "15 reweighted support vector machines, n = 3,000",
        '`SVC(kernel="precomputed")`',
        "svm_dual--kernel-duals-on-a-gram-matrix-in-memory",
        "{15 solves n=3000 C=1, warm float32, schedule : peer | faster} (C=1); {15 solves n=3000 C=10, warm float32, schedule : peer | "
        "speed} (C=10)",
        "dual values {15 solves n=3000 C=1: largest relative lag of the dual at 1e-3 | below} and {15 solves n=3000 C=10: largest "
        "relative lag of the dual at 1e-3 | below} (relative) above those of `SVC`",
    ),
    Headline(
        "200 kernels, 2,000 rows, to a gap of 10⁻³",
        "the same search around `SVC`; EasyMKL",
        "mkl_elastic--elastic-net-mkl-n-2000-200-kernels-v-0-5-c-1-0-gap-0-001",
        "{ours : strong loop around SVC | faster}; {ours : EasyMKL | speed}",
        "upper bounds agree to {upper bounds, relative difference | relative} (relative)",
        is_short=True,
    ),
    Headline(
        "the same, as 200 given float32 matrices, checks included",
        "the same search around `SVC`, without checks",
        "mkl_given--mkl-on-given-matrices-n-2000-200-float32-kernels-v-0-5-c-1-0-gap-0-001",
        "{given matrices : loop around SVC | speed}",
        "upper bounds agree to {upper bounds, relative difference | relative} (relative)",
    ),
    Headline(
        "91 to 793 kernels on six UCI sets, 20 splits",
        "the same outer loop around `SVC`",
        "mkl_thesis--uci-rows-of-the-thesis-heart-ionosphere-liver-pima-sonar-wdbc-20-splits",
        "{wdbc: ours : strong loop, median of paired splits | speed} (wdbc) to {ionosphere: ours : strong loop, median of paired splits "
        "| speed} (ionosphere) a split",
        "accuracy in per cent with v=0.5: heart {heart, v=0.5: accuracy, per cent}, ionosphere {ionosphere, v=0.5: accuracy, per cent}, "
        "liver {liver, v=0.5: accuracy, per cent}, pima {pima, v=0.5: accuracy, per cent}, sonar {sonar, v=0.5: accuracy, per cent}, "
        "wdbc {wdbc, v=0.5: accuracy, per cent}; each within the thesis' deviation or above",
    ),
    Headline(
        "group lasso, 1,000,000 × 160; 8,000 × 3,000, groups of ten",
        "celer",
        "group_lasso_batch--batch-group-lasso-1000000-x-160-and-8000-x-3000-groups-of-10",
        "{tall, alpha_max/50: ours : celer | faster}; {wide, alpha_max/10, noise 0.3: ours : celer | faster}, {wide, alpha_max/50, noise "
        "0.3: ours : celer | faster}, with more noise {wide, alpha_max/50, noise 1: ours : celer | speed}",
        "objective {tall, alpha_max/50: objective of ours above that of celer, relative | below} (relative) below that of celer",
        is_short=True,
    ),
    Headline(
        "20 tasks of 200 rows, 50 kernels, to a gap of 10⁻³",
        "a loop around `SVC` for each task",
        "multitask_mkl--multiple-kernel-learning-for-many-tasks",
        "{ours : loops around SVC, p=2 | faster} (p=2), {ours : loops around SVC, p=6 | faster} (p=6), {ours : loops around SVC, p=8.67 | "
        "speed} (p=8.67)",
        "mean accuracy {mean accuracy, p=2 | percent}, {mean accuracy, p=6 | percent}, {mean accuracy, p=8.67 | percent} (tasks alone: "
        "{loops around SVC, mean accuracy | percent})",
    ),
    Headline(
        "two planted rules, 3,000 × 20",
        "RuleFit; RIPPER",
        "rules--rule-ensembles",
        "{ours : RuleFit | faster}; {ours : RIPPER | speed}",
        "accuracy {accuracy on 5,000 rows | percent} with {rules} rules ({RuleFit, accuracy | percent} with {RuleFit, rules}; {RIPPER, "
        "accuracy | percent} with {RIPPER, rules})",
        is_short=True,
    ),
    Headline(
        "groups among 42 tasks, 2⁴² candidates",
        "the thesis: 23 minutes",
        "latent_tasks--latent-groups-of-tasks",
        "{planted 42 x 5, mu=1: median} to {planted 42 x 15, mu=0.1: median}",
        "certified over all groups to {planted 42 x 15, mu=0.1: certified relative gap | relative} (relative)",
    ),
    Headline(
        "feature-selection path, 300 × 1,000",
        "pyHSICLasso",
        "kta_path--kernel-selection-path-300-x-1-000-and-800-x-100-000",
        "{ours : pyHSICLasso | speed}",
        "{ours: planted among the 10 chosen} of 10 planted features (pyHSICLasso: {pyHSICLasso: planted among the 10 chosen})",
    ),
    Headline(
        "stream of 100,000 × 1,000,000, settings of both sides by validation",
        "`SGDClassifier.partial_fit`; its one `fit`",
        "stream--stream-of-100000-x-1000000-100-non-zeros-a-row-batches-of-1000",
        "{rows/s, sparsest alike : partial_fit, alpha chosen | times} the rows per second of `partial_fit` ({rows/s, largest rounds alike "
        ": partial_fit, alpha chosen | times} in rounds of many rows)",
        "accuracy {accuracy, sparsest alike - SGD, alpha chosen | points}; {accuracy, largest rounds alike - SGD, alpha chosen | points}; "
        "the most accurate {accuracy, most accurate - SGD, alpha chosen | points} at {rows/s, most accurate : partial_fit, alpha chosen | "
        "times} the rows per second",
    ),
    Headline(
        "a kernel from pairs, 6,414 rows of Adult",
        "the same by `eigh`",
        "npkl_adult--non-parametric-kernels-on-adult",
        "{whole fit : the same by eigh, N=6414 | speed}",
        "squared norm agrees to {relative error of ||A_+||_F^2 | relative} (relative)",
    ),
    Headline(
        "five Gram matrices of 30,000 rows, two workers of 1 GiB",
        "`rbf_kernel` by blocks of `dask.array`, `to_zarr`",
        "gram_distributed--5-gram-matrices-of-30000-rows-2-workers-of-1gib",
        "{build : peer | speed}",
        "a worker peaks at {build: measured peak of a worker process} (planned: {build: planned peak of a worker process}); the same bits "
        "after one is killed",
    ),
)

PEERS = {
    "fgm_degree2": '`PolynomialFeatures` and `LinearSVC(penalty="l1")`',
    "gram_distributed": "`rbf_kernel` by blocks of `dask.array`",
    "svm_dual": "`SVC`",
}
"""Who is meant by programs whose figures say "peer"."""
QUIET_LOAD = 2.0
"""Load of a machine on which nothing else runs: the program itself, and a little."""


def programs() -> dict[str, str]:
    """Return the names of all programs, and the file of each."""
    files = [path for path in sorted((ROOT / "benchmarks").glob("*.py")) if not path.stem.startswith("_")]
    return {name: path.stem for path in files for name in PROGRAM.findall(path.read_text())} | {"against": "against"}


def kept_runs() -> list[tuple[str, Record]]:
    """Return (name of the file, record) of every kept run, by name."""
    return [(path.stem, json.loads(path.read_text())) for path in sorted(RESULTS.glob("*.json"))]


# -- all runs ------------------------------------------------------------------------------------------------------------------


def all_runs(runs: list[tuple[str, Record]]) -> str:
    """Return every figure of every kept run."""
    return f"""# All benchmark runs

Programs without a kept run:

{not_run(runs)}

## Comparisons

{_headline_rows(runs, HEADLINES)}

## State of the rows

Every figure with a target, the verdict of its run, and the program that makes it. Where a load is named other work ran on the two
processors: seconds are then upper bounds, ratios of two programs hold as far as both met the same load (they alternate), processor time and
accuracies stand. `MISSED.md` has the reason for every missed target.

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
    return f"{record['program']}{peer}, {record['date']}" + (f", load {load:.0f}" if load > QUIET_LOAD else "")


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
    lines.append(f"* `{record['command']}`, {record['date']}, commit {record['commit']}; {where}")
    lines.append("* " + ", ".join(f"{package} {version}" for package, version in record["versions"].items()))
    return "\n".join(lines)


def not_run(runs: list[tuple[str, Record]]) -> str:
    known = {record["program"] for _, record in runs}
    return "\n".join(f"- `{name}`" for name in sorted(programs().keys() - known)) or "- none"


# -- headlines -------------------------------------------------------------------------------------------------------------


def short(runs: list[tuple[str, Record]]) -> str:
    """Return the comparisons of README and docs/benchmarks.md."""
    return _headline_rows(runs, [row for row in HEADLINES if row.is_short])


def _headline_rows(runs: list[tuple[str, Record]], headlines: Sequence[Headline]) -> str:
    kept = dict(runs)
    rows = ["| Task | Compared with | Speed | Quality |", "|---|---|---|---|"]
    for row in headlines:
        told = [_told(kept[row.file], words) for words in (row.time, row.result)]
        rows.append(f"| {row.workload} | {row.peer} | {' | '.join(told)} |")
    return "\n".join(rows)


def plot(runs: list[tuple[str, Record]]) -> str:
    """Return the times of the headlines over their peers' as a plot."""
    kept, rows = dict(runs), []
    for row in HEADLINES:
        shown = _shown(kept[row.file])
        values = [1 / _times(shown[figure]) for figure, form in FIGURE.findall(row.time) if form in ("speed", "faster")]
        if values:
            rows.append((_plots.label_of(row.workload), values))
    return _plots.ratios(rows)


def verdicts(runs: list[tuple[str, Record]]) -> str:
    """Return how many figures met their targets."""
    told = [verdict for _, record in runs for *_, verdict in record["lines"] if verdict in ("met", "MISSED")]
    return f"Of {len(told)} figures with a target, {told.count('met')} met it."


def defaults(runs: list[tuple[str, Record]]) -> str:
    """Return how far each estimator at its defaults is behind scikit-learn's best of its kind, and what its slowest fit took."""
    found: dict[str, dict[str, str]] = {}
    for figure, value, *_ in dict(runs)[DEFAULTS]["lines"]:
        estimator, _, what = figure.partition(": ")
        found.setdefault(estimator, {})["behind" if what.startswith("behind the best") else what] = value
        if what.startswith("behind the best"):
            found[estimator]["kind"] = what.removeprefix("behind the best ").removesuffix(" peer, mean")
    rows = ["| estimator | compared with | behind, points | slowest fit (processor) | most memory |", "|---|---|---|---|---|"]
    for estimator, told in found.items():
        parts = (
            f"`{estimator}`",
            told["kind"],
            f"{100 * float(told['behind']):.1f}",
            told["slowest fit, processor"],
            told["greatest process"],
        )
        rows.append(f"| {' | '.join(parts)} |")
    return "\n".join(rows)


def _shown(record: Record) -> dict[str, str]:
    """Return the figures of a run by name, without their range."""
    return {figure: value.partition(" (")[0] for figure, value, *_ in record["lines"]}


def _told(record: Record, words: str) -> str:
    """Return words with figures in the places of their names."""
    shown = _shown(record)
    return FIGURE.sub(lambda found: FORMS[found[2] or ""](shown[found[1]]), words)


def _times(value: str) -> float:
    """Return how many times faster we are than the peer: of ``"0.188 = 1/5.32"``, our time over the peer's, 5.32."""
    share, _, times = value.partition(" = 1/")
    return float(times) if times else 1 / float(share)


def _speed(value: str) -> str:
    times = _times(value)
    return f"{_digits(times)}× faster" if times > 1 else f"{_digits(1 / times)}× slower"


def _faster(value: str) -> str:
    if (times := _times(value)) < 1:
        raise ValueError(f"{value} is slower: write this headline with `speed`")
    return f"{_digits(times)}×"


def _digits(times: float) -> str:
    return f"{times:.{3 if times > 100 else 2}g}"


FORMS: dict[str, Callable[[str], str]] = {
    "": str,
    "speed": _speed,
    "faster": _faster,
    "times": lambda value: f"{float(value.removesuffix('x')):.3g}×",
    "points": lambda value: f"{100 * float(value):+.2f} points".replace("-", "−"),
    "percent": lambda value: f"{100 * float(value):.1f} %",
    "count": lambda value: f"{float(value):,.0f}",
    "relative": lambda value: f"{float(value):.2g}",
    "below": lambda value: f"{-float(value):.2g}",
}
"""How a figure is written: ``0.3`` of a time is "3.3× faster", ``0.0219`` more accuracy "+2.19 points"."""


# -- pages -----------------------------------------------------------------------------------------------------------------

MADE: dict[str, Callable[[list[tuple[str, Record]]], str]] = {
    "short": short,
    "plot": plot,
    "verdicts": verdicts,
    "defaults": defaults,
}


def made_anew(page: str, runs: list[tuple[str, Record]]) -> str:
    """Return the text of a page with its blocks written anew."""
    return BLOCK.sub(lambda block: f"{block[1]}{MADE[block[2]](runs)}\n{block[3]}", page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where a page is not up to date")
    parser.add_argument("--runs", action="store_true", help="print all runs")
    options, runs, stale = parser.parse_args(), kept_runs(), []
    if options.runs:
        print(all_runs(runs))
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
