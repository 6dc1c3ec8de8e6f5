"""Charts of rule ensembles in reports: the rules by weight."""

from __future__ import annotations

from ...records.charts import Chart, ShownTable, SystemCharts, short
from ...records.run_view import RunView, number
from ...records.shared_charts import ranking

MAX_RULES = 20  # rules of the chart; the table has all

TABLES = (ShownTable("rules", "Rules by weight", "All of them are in rules.csv and rules.json."),)


def rule_weights(run: RunView) -> list[Chart]:
    """Return a chart of the rules with the largest weights. With two classes, bars of rules for the first class are negative; with more
    classes, each rule names its class; with a real target, bars are what the rules add to it.
    """
    rows, classes = run.tables.get("rules", ()), run.summary.get("classes")
    if not rows:
        return []
    shown, sides = rows[:MAX_RULES], [str(label) for label in classes] if isinstance(classes, (list, tuple)) else []
    is_signed, is_number = len(sides) == 2, classes is None
    signs = [-1.0 if is_signed and str(row["vote"]) == sides[0] else 1.0 for row in shown]
    names = [short(row["rule"] if is_signed or is_number else f"{row['rule']}: {row['vote']}", 56) for row in shown]
    votes = f"positive: towards class {sides[1]}, negative: towards class {sides[0]}" if is_signed else "each with its class"
    votes = "what each adds to the prediction" if is_number else votes
    caption = f"The {len(shown)} largest of {len(rows):,} rules; {votes}."
    values = [sign * number(row["weight"]) for sign, row in zip(signs, shown, strict=True)]
    return [ranking("Rules by weight", caption, names, values, "weight")]


CHARTS = SystemCharts(found=(rule_weights,), tables=TABLES, displays={"rules": rule_weights})
