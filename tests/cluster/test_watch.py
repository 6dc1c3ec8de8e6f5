"""Dask's dashboard and report on request, and clients that nothing uses."""

from __future__ import annotations

import importlib.util
import re
import urllib.request
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gramplane import FGMClassifier, use_client
from gramplane.cluster import ClusterConfigError, MemorySink, open_executor, parse_cluster, plan, watch_clusters
from tests.support import toys

pytestmark = pytest.mark.cluster
needs_bokeh = pytest.mark.skipif(importlib.util.find_spec("bokeh") is None, reason="bokeh is an extra")


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """Address of a scheduler that is not started here."""
    from distributed import LocalCluster

    there = {"host": "127.0.0.1", "protocol": "tcp://", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **there) as cluster:
        yield cluster.scheduler_address


@needs_bokeh
@pytest.mark.parametrize("kind", ["local", "address"])
def test_a_cluster_shows_its_dashboard_and_leaves_a_report_on_all_of_its_tasks(kind: str, elsewhere: str, tmp_path: Path):
    events, report = MemorySink(), tmp_path / "report.html"
    with watch_clusters(True, str(report)):
        for name in ("first-pass", "second-pass"):
            with open_executor(parse_cluster("local:1" if kind == "local" else elsewhere), events=events) as executor:
                executor.run(plan(toys.program(toys.rough_sum, name=name), [1, 2], 7, 0.0))
                with urllib.request.urlopen(events.named("dashboard")[-1]["message"].removeprefix("dashboard: "), timeout=10) as page:
                    assert page.status == 200 and b"bokeh" in page.read()
    text = report.read_text()
    assert "first-pass" in text and "second-pass" in text
    assert not re.search(r"<script[^>]*https?:", text), "the page needs no network"


def test_what_a_dashboard_needs_is_told_before_work_starts(elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with watch_clusters(dashboard=True), pytest.raises(ClusterConfigError, match="need a cluster; add --cluster local:N"):
        open_executor(parse_cluster("sync")).__enter__()
    monkeypatch.setattr("gramplane.cluster.workers.connect._has_bokeh", lambda: False)
    with watch_clusters(report=str(tmp_path / "r.html")), pytest.raises(ClusterConfigError, match=r"install gramplane\[dashboard\] there"):
        open_executor(parse_cluster(elsewhere)).__enter__()
    assert not (tmp_path / "r.html").exists()


@pytest.fixture
def client() -> Iterator[object]:
    from distributed import Client

    with Client(processes=False, n_workers=1, dashboard_address=None) as client:
        yield client


def test_an_active_client_that_is_not_used_is_told_once(client: object):
    X = np.random.default_rng(0).normal(size=(30, 4))
    model = FGMClassifier(B=1, max_rounds=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with use_client(client):
            model.fit(X, X[:, 0] > 0)
        FGMClassifier(B=1, max_rounds=1, cluster="sync").fit(X, X[:, 0] > 0)
    with pytest.warns(UserWarning, match=r"the active Dask client is not used.*use_client"):
        model.fit(X, X[:, 0] > 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, X[:, 0] > 0)


def test_run_functions_tell_it_too(client: object):
    with pytest.warns(UserWarning, match="the active Dask client is not used"), open_executor(parse_cluster("sync")):
        pass
