"""What a driver may hold: the machine's memory or its container's, refusals that name the largest things."""

import pytest

from gramplane.cluster import MemoryBoundExceeded, config, default_driver_memory, machine_memory, parse_cluster
from gramplane.pipeline.core.memory import refuse

ITEMS = (("kernel matrix", 3 << 30), ("rows", 1 << 20), ("nothing", 0))


def test_too_much_is_refused_with_the_largest_things_first():
    refuse("npkl", ITEMS, (3 << 30) + (1 << 20), "fewer rows")
    with pytest.raises(MemoryBoundExceeded) as caught:
        refuse("npkl", ITEMS, 3 << 30, "fewer rows")
    assert str(caught.value) == (
        "npkl: this process would hold 3.001 GiB (kernel matrix 3 GiB, rows 1 MiB), it may hold driver_memory=3 GiB: "
        "fewer rows, or give it more (--driver-memory)"
    )
    assert (caught.value.needed, caught.value.available) == ((3 << 30) + (1 << 20), 3 << 30)


V1, V2, GIB = "sys/fs/cgroup/memory/", "sys/fs/cgroup/", 1 << 30
LIMITS = {
    "nothing is known": ("", {}, None),
    "a container of version 2": ("0::/\n", {V2 + "memory.max": GIB}, GIB),
    "none in version 2": ("0::/\n", {V2 + "memory.max": "max", V2 + "memory.high": "max"}, None),
    "more than there is": ("0::/\n", {V2 + "memory.max": 1 << 60}, None),
    "a unit of systemd, and its slice": (
        "0::/user.slice/user-1000.slice/run-7.scope\n",
        {V2 + "user.slice/memory.max": GIB, V2 + "user.slice/user-1000.slice/run-7.scope/memory.max": 2 * GIB, V2 + "memory.max": "max"},
        GIB,
    ),
    "held back before the limit": ("0::/a/b\n", {V2 + "a/b/memory.max": 3 * GIB, V2 + "a/b/memory.high": 2 * GIB}, 2 * GIB),
    "a step of a Slurm job, version 1": (
        "4:memory:/slurm/uid_0/job_5/step_0/task_0\n3:cpuset,cpu:/slurm\n1:name=systemd:/\n0::/\n",
        {V1 + "memory.limit_in_bytes": 2**63 - 4096, V1 + "slurm/uid_0/job_5/memory.limit_in_bytes": GIB, V2 + "memory.max": "max"},
        GIB,
    ),
    "a container of version 1, named as outside": ("4:hugetlb,memory:/docker/aa\n", {V1 + "memory.limit_in_bytes": GIB}, GIB),
    "moved out of its name space": ("0::/../../elsewhere\n", {V2 + "memory.max": GIB}, GIB),
}


@pytest.mark.parametrize(("groups", "files", "limit"), LIMITS.values(), ids=LIMITS)
def test_control_groups_limit_what_counts_as_memory(monkeypatch, tmp_path, groups, files, limit):
    for name, text in {"proc/self/cgroup": groups, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(str(text))
    monkeypatch.setattr(config, "_ROOT", tmp_path)
    monkeypatch.setattr(config.psutil, "virtual_memory", lambda: type("memory", (), {"total": 8 << 30}))
    machine_memory.cache_clear()
    try:
        assert machine_memory() == (limit or 8 << 30)
        assert default_driver_memory() == (limit or 8 << 30) // 2
        assert parse_cluster("local:2").memory_per_worker == int(0.9 * (limit or 8 << 30) / 2)
    finally:
        machine_memory.cache_clear()
