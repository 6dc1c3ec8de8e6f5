"""The cluster grammar, plain connections, certificate settings."""

import os
import stat

import pytest

from gramplane.cluster import (
    FORMS,
    ClusterConfig,
    ClusterConfigError,
    Limits,
    PlaintextRefused,
    TLSFiles,
    config,
    default_driver_memory,
    machine_memory,
    make_certificates,
    parse_bytes,
    parse_cluster,
)
from gramplane.cluster.security import find_tls, is_loopback, is_plaintext_abroad


@pytest.mark.parametrize(
    ("text", "kind", "target", "workers", "threads"),
    [
        (None, "sync", "", 1, 1),
        ("sync", "sync", "", 1, 1),
        ("local:4", "local", "", 4, 1),
        ("local:2x3", "local", "", 2, 3),
        ("tcp://127.0.0.1:8786", "address", "tcp://127.0.0.1:8786", 1, 1),
        ("tcp://[::1]:8786", "address", "tcp://[::1]:8786", 1, 1),
        ("tls://node7.example:8786", "address", "tls://node7.example:8786", 1, 1),
        ("scheduler-file:/tmp/a b/s.json", "scheduler-file", "/tmp/a b/s.json", 1, 1),
        ("factory:my.site.clusters:make", "factory", "my.site.clusters:make", 1, 1),
    ],
)
def test_every_form_is_parsed(text, kind, target, workers, threads):
    config = parse_cluster(text)
    assert (config.kind, config.target, config.workers, config.threads) == (kind, target, workers, threads)
    assert parse_cluster(str(config)) == config


@pytest.mark.parametrize(
    "text",
    [
        *["local", "local:", "local:0", "local:2x0", "local:-1", "local:2.5", "local:x2", "local:2X3", "local:2 ", "local:999999"],
        *["SYNC", "threads", "127.0.0.1:8786", "http://a:1", "ucx://a:1"],
        *[
            "tcp://",
            "tcp://host",
            "tcp://host:port",
            "tcp://host:99999",
            "tls://:8786",
            "tls://host:1/path",
            "tls://user@host:1",
            "tls://[::1",
        ],
        *["scheduler-file:", "factory:", "factory:a.b", "factory:a.b:", "factory::f", "factory:a..b:f", "factory:a.b:f()", "factory:a-b:f"],
    ],
)
def test_errors_name_the_value_and_the_forms(text):
    with pytest.raises(ClusterConfigError) as caught:
        parse_cluster(text)
    assert repr(text) in str(caught.value)
    assert FORMS in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_home_is_expanded():
    assert parse_cluster("scheduler-file:~/s.json").target == os.path.expanduser("~/s.json")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1"])
def test_loopback(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "192.168.1.7", "0.0.0.0", "8.8.8.8", "::", "fe80::1%eth0", "no-such-host.invalid", ""])
def test_not_loopback(host):
    assert not is_loopback(host)


def test_plain_connections_off_loopback_are_refused_unless_allowed():
    with pytest.raises(PlaintextRefused, match=r"tcp://10\.0\.0\.1:8786.*--allow-plaintext") as caught:
        parse_cluster("tcp://10.0.0.1:8786")
    assert isinstance(caught.value, ValueError)
    assert parse_cluster("tcp://10.0.0.1:8786", allow_plaintext=True).allow_plaintext
    assert not is_plaintext_abroad("tls://10.0.0.1:8786")


def test_a_factory_is_code_and_can_be_forbidden():
    with pytest.raises(ClusterConfigError, match="runs code"):
        parse_cluster("factory:os:getcwd", allow_code=False)
    assert parse_cluster("local:2", allow_code=False).workers == 2


@pytest.mark.parametrize(
    ("text", "value"),
    [(5, 5), ("5", 5), ("256MiB", 256 << 20), ("1.5 GB", 1_500_000_000), ("2g", 2_000_000_000), ("1e9", 10**9), (" 3 kib ", 3072)],
)
def test_bytes(text, value):
    assert parse_bytes(text) == value


@pytest.mark.parametrize("text", ["", "x", "GiB", "-1", "0", "1 PB", "1,5GB", "nan", "inf", "1e999", True])
def test_bad_bytes(text):
    with pytest.raises(ClusterConfigError, match="not a number of bytes"):
        parse_bytes(text)


def test_settings_are_carried(tmp_path):
    tls = make_certificates(tmp_path)
    limits = Limits(retries=1)
    config = parse_cluster("local:2", worker_memory="1GiB", tls=tls, limits=limits)
    assert config == ClusterConfig(kind="local", workers=2, worker_memory=1 << 30, tls=tls, limits=limits)


def test_the_environment_sets_limits(monkeypatch):
    for name, text in {"NO_WORKERS_TIMEOUT": "2.5", "ALLOWED_FAILURES": "3", "FREE_DISK": "1MiB"}.items():
        monkeypatch.setenv(f"GRAMPLANE_{name}", text)
    assert parse_cluster("sync").limits == Limits(no_workers_timeout=2.5, allowed_failures=3, free_disk=1 << 20)
    assert parse_cluster("sync", limits=Limits()).limits == Limits()


@pytest.mark.parametrize("name", ["RETRIES", "STALL_TIMEOUT", "FREE_DISK"])
@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan", ""])
def test_limits_in_the_environment_are_numbers(monkeypatch, name, text):
    monkeypatch.setenv(f"GRAMPLANE_{name}", text)
    with pytest.raises(ClusterConfigError, match=f"GRAMPLANE_{name}='{text}': must be a"):
        parse_cluster("sync")


def test_certificates_are_private(tmp_path):
    old = os.umask(0)
    try:
        files = make_certificates(tmp_path / "tls")
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(files.key).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "tls").st_mode) == 0o700
    with pytest.raises(FileExistsError):
        make_certificates(tmp_path / "tls")
    assert "PRIVATE" not in repr(files)


def test_tls_settings_come_from_argument_environment_or_dask(tmp_path, monkeypatch):
    import dask

    given, environment, configured = (make_certificates(tmp_path / name) for name in "abc")
    assert find_tls() is None
    settings = {"ca-file": configured.ca, "client.cert": configured.cert, "client.key": configured.key}
    with dask.config.set({f"distributed.comm.tls.{key}": value for key, value in settings.items()}):
        assert find_tls() == configured
        for name in ("ca", "cert", "key"):
            monkeypatch.setenv(f"GRAMPLANE_TLS_{name.upper()}", getattr(environment, name))
        assert find_tls() == environment
        assert find_tls(given) == given


def test_incomplete_tls_settings_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("GRAMPLANE_TLS_CERT", str(tmp_path / "cert.pem"))
    with pytest.raises(ClusterConfigError, match="environment: ca, key missing"):
        find_tls()


def test_missing_tls_files_are_named(tmp_path):
    files = make_certificates(tmp_path)
    with pytest.raises(ClusterConfigError, match=r"key file .*nowhere.*GRAMPLANE_TLS_KEY"):
        parse_cluster("tls://127.0.0.1:1", tls=TLSFiles(files.ca, files.cert, str(tmp_path / "nowhere")))


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
