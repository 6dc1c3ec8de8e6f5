"""Read run directories into views. No other part of the report knows how a run is stored."""

from __future__ import annotations

import fcntl
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...pipeline.records.run_view import RunView
from ..checking import ConfigError

if TYPE_CHECKING:
    from ...storage import RunStore

_STEPS = ("iteration", "objective", "gap", "outer_gap", "n_selected", "train_accuracy", "test_accuracy", "train_r2", "test_r2")


def is_run(path: str | Path) -> bool:
    return (Path(path) / "config.json").exists()


def is_tuned(path: str | Path) -> bool:
    """Return whether a folder is a run of ``tune``; the fit with the best parameters is in its folder ``best``."""
    return is_run(path) and "tune" in _open(path).config


def model_run(path: str | Path) -> str:
    """Return the run directory that holds the model: the run itself, or the best fit of a ``tune``."""
    return str(Path(path) / "best") if is_tuned(path) else str(path)


def _open(path: str | Path) -> RunStore:
    from ...storage import RunStore

    if not is_run(path):
        raise ConfigError(f"{path} is not a run directory (it has no config.json); give the folder that a fit wrote")
    return RunStore.open(path)


def _last(history: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: history[-1][key] for key in _STEPS if history and history[-1].get(key) is not None}


def _is_locked(path: Path) -> bool:
    """Return whether a process holds the run. The lock itself is tried, because the pid in the lock file may belong to another process by
    now.
    """
    try:
        with (path / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _state(run: RunStore) -> str:
    if run.read_json("summary") is not None:
        return "done"
    return "running" if _is_locked(run.path) else "stopped" if run.history() else "not started"


def run_figures(path: str | Path) -> dict[str, Any]:
    """Return state, method, number of rounds and last values (such as the objective) of a run. Needs no cluster and no data. Raises
    ConfigError if it is no run.
    """
    tuned, run = is_tuned(path), _open(path)
    summary, history, state = run.read_json("summary"), run.history(), _state(run)
    figures = {"run": str(path), "state": state, "method": run.config["tune" if tuned else "method"]}
    figures |= {"data": (run.read_json("where") or {}).get("data"), "rounds": len(history), **_last(history)}
    if summary:
        figures["summary"] = summary
    best = Path(model_run(path))
    figures |= _note_replaced(_open(best) if is_run(best) else run)
    if state in ("stopped", "not started"):
        figures["next"] = "the tune command again" if tuned else f"gramplane resume {path}"
    return figures


def _note_replaced(run: RunStore) -> dict[str, str]:
    """Return a note if the store of a run was replaced after the run began."""
    from ...pipeline.runs.data import replaced_data

    message = replaced_data(run)
    return {} if message is None else {"data_replaced": message}


def view_run(path: str | Path, name: str | None = None) -> RunView:
    """Return a run as a view for the report; an unfinished run shows what it has so far.

    ``name`` appears in headings and legends; default: the folder's name. Raises ConfigError if ``path`` is no run directory.
    """
    from ...pipeline import METHODS
    from ...pipeline.runs.data import training_facts

    trials, shown = (_open(path).read_json("tune") or [] if is_tuned(path) else []), name or Path(path).resolve().name
    if is_tuned(path) and not is_run(model_run(path)):
        raise ConfigError(f"{path}: the grid is not finished, so there is no fit to report on yet; give the tune command again")
    run = _open(model_run(path))
    config, started, tables = run.config, run.read_json("where") or {}, run.read_json("tables") or {}
    history, info, stability = run.history(), METHODS[config["method"]], run.read_json("stability")
    if stability is not None:
        tables = {**tables, "stability": stability["features"]}
    version = config["data_digest"][:64]  # what stands behind a sha256 is the scaling, a parameter
    settings = {**started, **_note_replaced(run), "data_digest": version, "seed": config["seed"]}
    return RunView(
        name=shown,
        path=str(path),
        method=config["method"],
        title=info.title,
        params=config["params"],
        settings={**settings, **(run.read_json("decisions") or {})},
        command="" if trials else _fit_command(path, config, started.get("data")),
        meanings={name: field.description or "" for name, field in info.config.model_fields.items()},
        state=_state(run),
        summary=run.read_json("summary") or {**_last(history), "iterations": len(history)},
        history=history,
        selected=tables.get("selected", []),
        tables={name: rows for name, rows in tables.items() if name != "selected"},
        scores=saved_scores(run.path),
        trials=trials,
        training=training_facts(run),
    )


def _fit_command(path: str | Path, config: Mapping[str, Any], data: object) -> str:
    """Return the command that repeats a fit; ``""`` if the fit read further files, because their names are not recorded."""
    from ...pipeline import METHODS
    from .words import relative_path

    extra = config.get("extra", {})
    if data is None or set(extra) - {"test_share"}:
        return ""
    defaults = METHODS[config["method"]].config().model_dump(mode="json")
    changed = {key: value for key, value in config["params"].items() if defaults.get(key, value) != value}
    words = ["gramplane", "fit", config["method"], "--data", relative_path(data), "--run", relative_path(path)]
    words += [word for key, value in changed.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    words += [f"--test-share={extra['test_share']}"] if extra else []
    return shlex.join([*words, *([f"--seed={config['seed']}"] if config["seed"] else [])])


def save_score(path: str | Path, store: str, table: Mapping[str, Any]) -> None:
    """Store the scores on a store in the run directory; they replace earlier scores on the same store."""
    from ...storage.errors import plain_json

    run = _open(path)
    saved = run.read_json("scores") or {}
    run.write_json("scores", {**saved, store: plain_json(table)})


def save_stability(path: str | Path, found: Mapping[str, Any]) -> None:
    """Store the stability of the selection in the run directory, replacing an earlier one."""
    from ...storage.errors import plain_json

    _open(path).write_json("stability", plain_json(found))


def saved_scores(path: str | Path) -> list[dict[str, Any]]:
    """Return the scores kept in a run directory, one entry per store."""
    saved = _open(path).read_json("scores") or {}
    return [{"store": Path(store).name, **table} for store, table in saved.items()]


def write_json(path: Path, value: Mapping[str, Any]) -> Path:
    """Write a small JSON file atomically and return its path."""
    from ...storage.errors import plain_json

    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(plain_json(value), indent=1))
    return path


def replace_text(path: Path, text: str) -> None:
    """Write a file atomically, so that no reader sees a part of it."""
    from ...storage.objects import write_atomic

    write_atomic(str(path.absolute()), (text.encode("utf-8", "backslashreplace"),), fsync=False)
