"""What docs/first-table.md shows of the kept run of the stranger's first table."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]

FIRST_TABLE = "first_table--a-stranger-s-first-table"


def tell_means(runs: list[tuple[str, Record]]) -> str:
    """Return what every machine keeps of its goals."""
    record = dict(runs)[FIRST_TABLE]
    rows = ["| machine | figure | value | goal | verdict |", "|---|---|---|---|---|"]
    for figure, value, target, verdict in record["lines"]:
        machine, _, what = figure.partition(": ")
        rows.append(f"| `{machine}` | {what} | {value} | {target} | {verdict} |")
    return "\n".join(rows)


def tell_sets(runs: list[tuple[str, Record]]) -> str:
    """Return a table for every set, with a row for every machine."""
    record = dict(runs)[FIRST_TABLE]
    parts: dict[str, list[str]] = {}
    for row in record["figures"]["table"]:
        is_target = "balanced" not in row
        heads = ("R²",) if is_target else ("accuracy", "balanced", "AUC")
        title = f"### {row['set']}, {row['variant']}"
        majority = "" if is_target or "majority" not in row else f", majority {row['majority']:.3f}"
        lines = parts.setdefault(title, [])
        if not lines and "score" in row:
            lines += [f"{title}{majority}", "", f"| machine | {' | '.join(heads)} | processor, s | MiB | features | splits |"]
            lines.append("|" + "---|" * (len(heads) + 5))
        if "score" not in row:
            continue
        scores = [f"{row[key]:.3f}" for key in ("score", "balanced", "auc")[: len(heads)]]
        features = "" if row.get("features") is None or row["features"] != row["features"] else f"{row['features']:.0f}"
        lines.append(f"| {row['machine']} | {' | '.join(scores)} | {row['cpu']:.2f} | {row['MiB']:.0f} | {features} | {row['splits']} |")
    return "\n\n".join("\n".join(lines) for lines in parts.values() if lines)


def tell_run(runs: list[tuple[str, Record]]) -> str:
    """Return how it was run, and what ended before its time."""
    record = dict(runs)[FIRST_TABLE]
    machine = record["machine"]
    loads = [row["load"] for row in record["figures"]["table"] if row.get("load") is not None]
    where = f"{machine['cpu']}, {machine['processors']} processors, load {min(loads):.0f} to {max(loads):.0f}"
    lines = [f"- `{record['command']}`, {record['date']}; {where}"]
    return "\n".join([*lines, *(f"- {note}" for note in record["notes"])])
