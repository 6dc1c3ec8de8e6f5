"""``npkl`` at ``--driver-memory 16MiB`` ran at 843 MiB, rule ensembles took 800 MB at 4 MiB, and nothing said so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from gramplane.storage.ingest import ingest
from tests.reliability.walks import Skipped, walk
from tests.support.commands import start


@walk(15, "more than the driver may hold ends with 5 before it is taken, and names what would help")
def the_driver_refuses_what_it_may_not_hold(folder: Path) -> None:
    """Type the two reported commands, on data small enough for seconds."""
    rng = np.random.default_rng(0)
    ingest((rng.normal(size=(3000, 4)), np.resize([-1, 1], 3000)), folder / "rows.zarr")
    ingest((rng.normal(size=(70, 5966)), np.resize([-1, 1], 70)), folder / "wide.zarr")
    pairs = "".join(f"{i},{i + 1},{1 - 2 * (i % 2)}\n" for i in range(2900))
    (folder / "pairs.csv").write_text(pairs)
    npkl = ["fit", "npkl", "--data", "rows.zarr", "--constraints", "pairs.csv", "--run", "npkl", "--driver-memory", "3MiB"]
    rules = ["fit", "rule-ensemble", "--data", "wide.zarr", "--run", "rules", "--driver-memory", "4MiB"]
    for words in (npkl, rules):
        command = start(words, folder)
        assert command.wait() == 5, f"{words[1]}: {command.messages}"
        assert "driver_memory" in command.messages and "--driver-memory" in command.messages, command.messages
    assert not (folder / "rules").exists(), "a refused run left its folder"


@walk(15, "what was fitted is not scored with too little, and the dry run of a workflow tells what each step will hold", quick=False)
def scores_and_workflows_are_planned(folder: Path) -> None:
    """Fit by a workflow's step, then ask its plan and score beyond the limit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    np.savez(folder / "rows.npz", X=X, y=np.where(X[:, 0] > 0, 1, -1))
    (folder / "flow.yaml").write_text(
        "schema: gramplane.workflow/1\nname: flow\nstore: store\nruns: runs\nsteps:\n"
        "  - {id: data, do: ingest, with: {source: rows.npz}}\n"
        "  - {id: rule, do: fit, needs: [data], with: {method: fgm, B: 2, max_rounds: 2}}\n"
        "  - {id: score, do: score, needs: [rule], with: {store: store}}\n"
        "  - {id: predict, do: predict, needs: [rule], with: {store: store, out: out.csv}}\n"
    )
    planned: set[str] = set()
    for step in ("data", "rule", None):
        told = start(["run", "flow.yaml", "--dry-run"], folder)
        assert told.wait() == 0, told.messages
        planned |= set(told.result["plans"])
        if step is not None:
            done = start(["run", "flow.yaml", "--step", step], folder)
            assert done.wait() == 0, done.messages
    assert planned == {"data", "rule", "score", "predict"}, planned
    (run,) = (folder / "runs").glob("*/rule")
    refused = start(["score", str(run), "store", "--driver-memory", "4KiB"], folder)
    assert refused.wait() == 5 and "--driver-memory" in refused.messages, refused.messages


@contextmanager
def control_group(mebibytes: int) -> Iterator[Path]:
    """Yield the file that takes the number of a process into a group, as a Slurm job's step has one, below a group with a limit."""
    home = Path("/sys/fs/cgroup/memory")
    own = next((line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line), None)
    if own is None:
        raise Skipped("no control groups of version 1 for memory")
    group = home / own.lstrip("/") / f"gramplane-{os.getpid()}"
    try:
        (group / "step").mkdir(parents=True)
        (group / "memory.limit_in_bytes").write_text(str(mebibytes << 20))
    except OSError as error:
        raise Skipped(f"control groups cannot be made: {error}") from error
    try:
        yield group / "step" / "cgroup.procs"
    finally:
        for folder in (group / "step", group):
            with suppress(OSError):
                folder.rmdir()


@walk(15, "a control group of 300 MiB below the root, as Slurm and systemd make them, is seen: a run beyond it ends with 5", quick=False)
def control_groups_are_seen(folder: Path) -> None:
    """Start a map of 8,000 rows, which took gigabytes until the kernel killed it, and workers that would not live through their start."""
    rng = np.random.default_rng(0)
    ingest((rng.normal(size=(8000, 2)), np.resize([-1, 1], 8000)), folder / "rows.zarr")
    with control_group(300) as processes:
        for words, told in ((["colored-mvu"], "driver_memory"), (["fgm", "--cluster", "local:2"], "--worker-memory")):
            fit = ["fit", *words, "--data", "rows.zarr", "--run", words[0]]
            command = start(fit, folder, ["sh", "-c", 'echo $$ > "$0" && exec "$@"', processes])
            assert command.wait() == 5 and told in command.messages, command.messages
