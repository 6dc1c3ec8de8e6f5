"""The report page: self-contained, inert whatever the names hold, small, and with the numbers that were measured."""

from __future__ import annotations

import base64
import csv
import html
import io
import math
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from gramplane.pipeline import METHODS
from gramplane.pipeline.records.charts import Chart, Legend, Series, short
from gramplane.pipeline.records.csv_texts import CsvTexts
from gramplane.pipeline.records.shared_charts import accuracy, dual_ascents, gaps, objective, pixels, weights
from gramplane.pipeline.runs.predictions import Predicted, predictions_writer
from gramplane.storage import RunStore
from gramplane.workflows import report
from gramplane.workflows.checking import ConfigError
from gramplane.workflows.report import RunView, svg, write_report, write_views
from gramplane.workflows.report.charts import plain_text
from gramplane.workflows.report.collect import view_run
from gramplane.workflows.report.glossary import explain_heading, glossary
from gramplane.workflows.report.head import method_sources
from gramplane.workflows.report.render import page, summary_rows
from gramplane.workflows.report.tables import TABLE_ROWS, cell, csv_files, make_table
from tests.workflows.report.pages import history, pictures, score, view

SIZE_LIMIT = 2 << 20
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "$\\frac{a}{b}$",
    "</style><script>x</script>",
    "a & b",
    "{{ 7*7 }}",
    "名前",
]


class _Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.append((tag, dict(attrs)))


def images(text: str) -> list[str]:
    """Return the drawings of a page."""
    return re.findall(r'<svg class="chart".*?</svg>', text, flags=re.DOTALL)


def test_the_page_loads_nothing_from_outside():
    text = page([view()])
    for tag, attrs in _Tags(text).tags:
        assert tag not in ("script", "link", "iframe", "object", "form", "img")
        for name in ("src", "href", "xlink:href"):
            assert str(attrs.get(name, "#")).startswith(("data:image/png", "data:image/svg+xml;base64,", "data:text/csv;base64,", "#"))
        assert not [name for name in attrs if name.startswith("on")]
    assert "default-src 'none'" in text and "url(http" not in text and "@import" not in text and "@font-face" not in text
    assert images(text) and not any("<style" in image or "<script" in image for image in images(text))


def test_names_are_text_whatever_they_hold():
    hostile = view(
        name=HOSTILE[0],
        title=HOSTILE[3],
        params=dict.fromkeys(HOSTILE, HOSTILE[1]),
        summary={"stop": HOSTILE[1]},
        settings={"data": HOSTILE[0]},
        selected=[{"feature": name, "weight": 1.0} for name in HOSTILE],
        scores=[{"store": name, "accuracy": 0.5, "classes": [{"label": name, "f1": 1.0}]} for name in HOSTILE],
    )
    text = page([hostile, view()])
    assert {tag for tag, _ in _Tags(text).tags} <= {
        "html", "head", "meta", "title", "style", "body", "header", "p", "span", "h1", "h2", "h3", "main", "div", "section", "table",
        "thead", "tbody", "tr", "th", "td", "figure", "figcaption", "details", "summary", "footer", "nav", "ul", "li", "a", "dl", "dt",
        "dd", "b", "code", "pre", "ol", "svg", "g", "path", "use", "text", "tspan", "defs", "clippath", "rect", "image",
    }  # fmt: skip
    assert not [attrs for _, attrs in _Tags(text).tags if "onerror" in attrs]
    for name in HOSTILE:
        assert text.count(html.escape(name, quote=True).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")) >= 3
    for image in images(text):
        ElementTree.fromstring(image.replace("<svg ", '<svg xmlns:xlink="x" ', 1))  # well formed: no name broke out
        assert "<script" not in image and "<img" not in image


def test_the_page_stays_small_however_many_features():
    many = [{"feature": "y" * 500 + str(j), "weight": 1.0 / (j + 1)} for j in range(20_000)]
    text = page([view(selected=many, history=history(500))] * 3)
    assert len(text.encode()) < SIZE_LIMIT
    assert text.count("yyyyy…") >= TABLE_ROWS
    assert f"The first {TABLE_ROWS} of 20,000 rows" in text


def image_of(chart) -> str:
    """Return the drawing of a chart."""
    return svg.picture(chart).svg


def test_figures_show_what_there_is():
    titles = [picture.title for picture in pictures([view()])]
    assert titles == [
        "Selected features", "Accuracy along the path", "Objective", "Gaps", "Seconds by phase",
    ]  # fmt: skip
    assert [picture.title for picture in pictures([view(history=[], selected=[])])] == []


def test_figures_are_the_same_every_time():
    assert [picture.svg for picture in pictures([view()])] == [picture.svg for picture in pictures([view()])]


def test_labels_and_values_stand_in_the_figures():
    shown = "".join(images(page([view(scores=[{"store": "held", "accuracy": 0.9}])])))
    for word in ("selected features", "accuracy", "held-out rows", "training rows", "held", "round", "x0", "all features"):
        assert word in shown


def test_scores_along_the_path_are_a_line():
    alone = image_of(accuracy([view(scores=[{"store": "t", "accuracy": 0.9}])])[0])
    points = [{"n_selected": 10, "accuracy": 0.8}, {"n_selected": 50, "accuracy": 0.9}]
    path = image_of(accuracy([view(scores=[{"store": "t", "path": points}])])[0])
    assert len(path) > len(alone)


def test_a_comparison_has_figures_first_and_then_what_differs():
    rows = rows_of(view(), view(params={"B": 10, "C": 3.0}))
    assert rows["C"] == ["1", "3"] and not {"B", "method", "data"} & set(rows) and list(rows)[-1] == "C"
    assert rows["accuracy on unseen rows"] == ["91.0 %", "91.0 %"], "held-out rows of the last round"


def bare(**more: object) -> RunView:
    """Return a run without figures."""
    return view(**{"history": [], "selected": [], **more})


def rows_of(*runs: RunView) -> dict[str, list[str]]:
    return {row["name"]: row["values"] for row in summary_rows(runs)}


def test_seconds_are_those_the_command_line_told_and_those_of_the_rounds():
    rows = rows_of(view(summary={"seconds": 13.25, "iterations": 5}))
    assert (rows["seconds of the run"], rows["seconds in rounds"]) == (["13.2"], ["2.5"])


def test_every_gap_says_what_it_is_certified_over():
    exact = {"gap": 0.1, "certified_over": "what was chosen so far", "outer_gap": 2.5, "iterations": 3, "rounds": 3}
    graph = {"gap": 0.2, "certified_over": "all nodes", "restricted_gap": 0.05, "relative_gap": 0.01, "iterations": 6, "rounds": 2}
    old = {"gap": 0.3, "rounds": 4}
    rows = rows_of(view(summary=exact), view(summary=graph), view(summary=old))
    assert rows["gap"] == ["0.1", "0.2", "0.3"] and rows["certified over"] == ["what was chosen so far", "all nodes", ""]
    assert rows["gap to the exact optimum"] == ["2.5", "", ""] and rows["gap of the working set"] == ["", "0.05", ""]
    assert rows["rounds"] == ["3", "6", "4"] and rows["rounds counted by max_rounds"] == ["", "2", ""]
    assert [row["name"] for row in summary_rows([view(summary=graph)])].count("rounds") == 1
    stream = rows_of(view(summary=graph), view(summary={"iterations": 3, "rounds": 66}, history=[{"iteration": 1, "epoch": 1}]))
    assert stream["rounds or steps"] == ["6", "3"] and stream["rounds of the stream"] == ["", "66"]


def test_an_unfinished_run_says_so():
    text = page([bare(name="cut", state="stopped", history=[{"iteration": 1}])])
    assert "cut is not finished: it was interrupted after round 1. To resume: gramplane resume " in text
    assert rows_of(view(), view(state="running"))["state"] == ["done", "running"]
    assert "is still running" in page([bare(state="running")]) and "notice" not in page([bare()]).split("</style>")[1]


def test_a_run_directory_without_summary_is_unfinished(tmp_path: Path):
    run = RunStore.create(tmp_path / "run", {"method": "fgm", "params": {"B": 5}, "data_digest": "d", "seed": 0})
    assert view_run(tmp_path / "run").state == "not started"
    run.append_history({"iteration": 1, "objective": 2.0})
    found = view_run(tmp_path / "run")
    assert (found.state, found.steps) == ("stopped", 1) and found.meanings["C"].startswith("inverse regularisation strength")
    run.write_json("summary", {"iterations": 1})
    assert view_run(tmp_path / "run").state == "done"
    RunStore.create(tmp_path / "grid", {"tune": "fgm"})
    with pytest.raises(ConfigError, match="the grid is not finished"):
        view_run(tmp_path / "grid")


def test_what_was_found_counts_weights_that_are_not_zero():
    empty = [{"feature": "last", "weight": 0.0}]
    run = view(settings={"n_atoms": 2144}, selected=[*view().selected, *empty])
    text = page([run])
    assert "50 of 2,144 candidates selected; 1 more entered the search and got no weight." in text
    assert "and 40 more under The model" in text and ">last<" not in text.split('id="work"')[0]
    used = [{"kernel": f"k{j}", "weight": 1.0} for j in range(6)]
    (drawn,) = weights(bare(tables={"kernels": used}, summary={"n_selected": 3}))
    assert "6 largest of 6 kernels with a weight. 3 of them count as selected" in drawn.caption


def test_the_head_names_what_a_reader_needs_to_trace_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    data = RunStore.create(tmp_path / "run", {"method": "fgm", "params": {"B": 5, "C": "auto"}, "data_digest": "d" * 64, "seed": 3})
    data.write_json("where", {"data": str(tmp_path / "a store")})
    text = html.unescape(page([view_run(tmp_path / "run")], title="Genes of the <first> cohort"))
    assert "<h1>Genes of the <first> cohort</h1>" in text and "digest dddddddd" in text and "gramplane 0." in text
    (command,) = re.findall("<pre>(.*?)</pre>", text)
    words = shlex.split(command)
    assert words[:3] == ["gramplane", "fit", "fgm"] and words[-3:] == ["--set", "B=5", "--seed=3"]
    assert words[words.index("--data") + 1] == "a store" and str(tmp_path) not in text


def test_figures_and_tables_are_files_in_links():
    text = page([view()])
    links = {attrs["download"]: attrs["href"] for tag, attrs in _Tags(text).tags if tag == "a" and "download" in attrs}
    kind, held = links["selected.csv"].split(",")
    assert kind == "data:text/csv;base64" and len(base64.b64decode(held).splitlines()) == 51
    drawing = base64.b64decode(links["selected-features.svg"].split(",")[1]).decode()
    assert ElementTree.fromstring(drawing).tag.endswith("svg") and "var(" not in drawing
    many = make_table("t", [{"feature": "y" * 50, "weight": 1.0}] * 20_000, file="selected.csv")
    assert len(base64.b64decode(many.link.split(",")[1]).splitlines()) == 1001 and "selected.csv all" in many.note


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"summary": {"classes": [3, 8]}}, "positive: towards class 8, negative: towards class 3"),
        ({"summary": {"classes": None}}, "positive weights raise the prediction"),
        ({"selected": [{"feature": "a", "weight[x]": 1.0, "weight[y]": -3.0}]}, "positive weights raise the score of the class"),
    ],
)
def test_what_a_sign_says(more: dict, words: str):
    (drawn,) = weights(view(**more))
    assert words in drawn.caption


def test_captions_speak_of_the_method():
    rules = view(method="rule-ensemble", tables={"rules": []})
    assert "features are added" in objective([view()])[0].caption and "features" not in objective([rules])[0].caption
    plain = [{**row, "outer_gap": None} for row in history()]
    (gap,) = gaps([view(history=plain, summary={"certified_over": "all groups"})])
    assert gap.title == "Gap" and "over all groups" in gap.caption


def test_lines_of_one_run_differ_in_colour_and_the_legend_shows_their_dashes():
    (drawn,) = accuracy([view()])
    image = image_of(drawn)
    words = re.findall(r"<text[^>]*>([^<]*)</text>", image)
    assert words[-2:] == ["held-out rows", "training rows"], "the legend is drawn last"
    legend = image[image.rindex("<path", 0, image.index("held-out rows")) - 2000 :]
    assert "var(--c0)" in legend and "var(--c1)" in legend and "stroke-dasharray" in legend
    ends = [[float(x) for x in re.findall(r"[ML] ([0-9.]+) ", path)] for path in re.findall(r'<path d="(M [^"]*)"[^>]*stroke', legend)]
    assert max(max(x) - min(x) for x in ends if len(x) > 1) > 20, "points: several dashes long"
    ticks = words[: words.index("selected features")]
    assert len(ticks) > 1 and all("." not in tick for tick in ticks)


def test_figures_are_explained_at_the_end():
    rounds = [{"iteration": 1, "outer_gap": 0.0}]
    run = bare(scores=[{"store": "t", "auc": 0.8}], meanings={"C": "loss weight"}, settings={"tasks_per_pass": 3}, history=rounds)
    head, words = html.unescape(page([run])).split('<h2 id="title-words">What the figures mean</h2>')
    assert explain_heading("outer_gap") in words and explain_heading("auc") in words and "loss weight" in head
    assert "max_rounds: the largest number of rounds was reached" in head and explain_heading("tasks_per_pass") in head
    assert explain_heading("weight[a[0]]") == explain_heading("weight") and explain_heading("seconds_solve") and explain_heading("x0") == ""


def test_several_runs_stand_side_by_side():
    text = page(
        [view(name="first"), view(name="second", method="rule-ensemble", history=[{**row, "outer_gap": None} for row in history()])]
    )
    assert "first all features" in "".join(images(text)), "alone in its figure, but not on the page"
    assert "2 runs side by side" in text and "first: Selected features" in text and "second: Seconds by phase" in text


def test_csv_holds_everything_in_full_precision():
    weight = 1 / 3
    files = csv_files([view(selected=[{"feature": 'a,"b"\nc', "weight": weight}], trials=[{"C": 1, "accuracy": 0.5}])])
    assert set(files) == {"rounds.csv", "selected.csv", "trials.csv", "summary.csv"}
    (row,) = csv.DictReader(io.StringIO(files["selected.csv"]))
    assert (row["feature"], float(row["weight"])) == ('a,"b"\nc', weight)
    assert len(list(csv.DictReader(io.StringIO(files["rounds.csv"])))) == 5


@pytest.mark.parametrize("excel_safe", [False, True])
def test_texts_that_a_spreadsheet_would_compute_are_told_or_quoted(tmp_path, excel_safe):
    odd, plain, told = ["=1+1", "@x", "+a", "-b c", "-inf"], ["-1.5", "+2e-3", ".5", "a=b", "1-2", ""], []
    texts, ids = CsvTexts(excel_safe, told.append), np.array([*odd, *plain], object)
    write_views([view(selected=[{"feature": name, "weight": -0.5, "terms": [name, "c"]} for name in ids])], tmp_path, texts=texts)
    predictions_writer(str(tmp_path / "p.csv"), texts)(Predicted(ids, ids, np.full((len(ids), 1), -2.0)))
    mark = "'" if excel_safe else ""
    expected = [*(f"{mark}{name}" for name in odd), *plain]
    with (tmp_path / "selected.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["feature"] for row in rows] == expected and {row["weight"] for row in rows} == {"-0.5"}
    assert [row["terms"] for row in rows][:5] == [f"{mark}{name} c" for name in odd]
    with (tmp_path / "p.csv").open(newline="") as file:
        assert [(row["id"], row["prediction"], row["decision"]) for row in csv.DictReader(file)] == [(e, e, "-2.0") for e in expected]
    assert bool(told) is not excel_safe and all("such as '=1+1'" in message and "--excel-safe" in message for message in told)


def test_scores_in_csv_are_plain_and_their_tables_have_files_of_their_own():
    score = {"store": "t", "accuracy": 0.5, "classes": [{"label": 1, "f1": 0.5}], "path": [{"n_selected": 5, "accuracy": 0.25}]}
    files = csv_files([view(scores=[score, {**score, "store": "u", "classes": []}], trials=[{"C": 1, "odd": {"a": 1}}])])
    assert files["scores.csv"] == "run,store,accuracy\nrun a,t,0.5\nrun a,u,0.5\n"
    assert files["scores_classes.csv"] == "run,store,label,f1\nrun a,t,1,0.5\n"
    assert len(files["scores_path.csv"].splitlines()) == 3
    assert '"{""a"": 1}"' in files["trials.csv"]


def test_missing_and_odd_values_are_shown_as_nothing():
    odd = [{"iteration": 1, "objective": None, "gap": [1.0, 2.0], "n_selected": True}, {"iteration": 2, "objective": float("inf")}]
    text = page([view(history=odd, summary={}, selected=[{"feature": "a"}])])
    assert ">None<" not in text and ">nan<" not in text
    assert make_table("t", [{"a": 1, "b": None}, {"a": None, "c": "x"}]).columns == ["a", "c"]
    values = (None, math.nan, True, 1234567, 0.1234567891, 141_700.2, [1, 2])
    assert [cell(value) for value in values] == ["", "", "yes", "1,234,567", "0.123", "141,700", "1, 2"]


def test_weights_of_several_classes_are_drawn_by_the_largest():
    rows = [{"feature": "a", "weight[x]": 1.0, "weight[y]": -3.0}]
    (chart,) = weights(view(selected=rows))
    assert list(chart.series[0].y) == [-3.0] and image_of(chart)


def test_pixels_count_both_ends_of_a_product():
    names = [("pixel_0_1*pixel_2_3", -2.0), ("pixel_2_3", 0.5), ("pixel_3_3*pixel_3_3", 1.0)]
    (drawn,) = pixels(view(selected=[{"feature": name, "weight": weight} for name, weight in names]))
    found = {(i, j): value for i, row in enumerate(drawn.matrix) for j, value in enumerate(row) if value}
    assert found == {(0, 1): 2.0, (2, 3): 2.5, (3, 3): 1.0} and image_of(drawn)
    line = drawn.series[-1]
    assert (line.x, line.y, line.colour) == ([1, 3], [0, 2], 1), "the heaviest on top, orange as it is negative"


@pytest.mark.parametrize("names", [["x1"], ["pixel_0_0", "age"], ["pixel_0_0*pixel_1_1*pixel_2_2"], ["pixel_900_0"], ["pixel_0"], []])
def test_other_names_are_no_pixels(names: list[str]):
    assert pixels(view(selected=[{"feature": name, "weight": 1.0} for name in names])) == []


def test_dollars_are_dollars_and_long_names_are_cut():
    assert plain_text(short("a$b$c")) == r"a\$b\$c"
    assert len(short("z" * 100)) == 40


# -- files -----------------------------------------------------------------------------------------------------------


def test_files_are_written_whole(tmp_path: Path):
    written = write_views([view()], tmp_path / "deep" / "out")
    assert {file.name for file in (tmp_path / "deep" / "out").iterdir()} == {"report.html", *(file.name for file in written.tables)}
    assert written.page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="is not a run directory"):
        write_report([tmp_path], tmp_path)


# -- what systems bring ----------------------------------------------------------------------------------------------


def test_a_word_is_explained_in_one_place():
    lines = (Path(report.__file__).parent / "figures.txt").read_text("utf-8").splitlines()
    names = [line.split(": ")[0] for line in lines if line and not line.startswith("#")]
    assert sorted(names) == sorted(glossary()) and not any(info.charts.glossary for info in METHODS.values())


def test_runs_of_a_method_that_is_gone_have_the_shared_charts():
    titles = [picture.title for picture in pictures([view(method="gone")])]
    assert titles == [picture.title.replace("along the path", "against number of features") for picture in pictures([view()])]


def test_charts_are_drawn_as_they_say():
    line, bars = Series([1, 2, 3], [1.0, 10.0, 500.0], "a$b"), Series([1, 2], [2.0, 1.0], "b", "bar", 1)
    log = image_of(Chart("t", "c", series=[line], y_scale="log", legend=Legend("below", 2, "kinds")))
    assert ">100<" in log and ">300<" not in log and "a$b" in log and "kinds" in log
    assert ">300<" in image_of(Chart("t", "c", series=[line, bars], x_scale="falling", from_zero=True))
    heat = image_of(Chart("t", "c", "heat", names=["k1", "k2"], row_names=["r1"], matrix=[[1.0, -2.0]]))
    assert all(name in heat for name in ("k1", "k2", "r1"))
    with pytest.raises(KeyError):
        image_of(Chart("t", "c", "cake"))  # pyright: ignore[reportArgumentType] (what a type check refuses)


def test_an_ascent_is_drawn_where_both_sides_are_known():
    steps = [{"iteration": t, "dual": 1.0 * t, "primal": 9.0 - t} for t in (1, 2, 3)]
    assert [chart.title for chart in dual_ascents(view(history=steps))] == ["Primal and dual"]
    for side in ("dual", "primal"):
        assert dual_ascents(view(history=[{**step, side: None} for step in steps])) == []


def test_a_single_round_has_figures_and_no_lines():
    titles = [picture.title for picture in pictures([view(history=history(1))])]
    assert "Selected features" in titles and not {"Objective", "Gaps", "Accuracy along the path"} & set(titles)
    both = [picture.title for picture in pictures([view(history=history(1)), view(name="b")])]
    assert {"Objective", "Gaps"} <= set(both)


def test_a_methods_paragraph_has_its_figures_and_its_source():
    run = view(summary={"C": 0.5, "n_selected": 50, "n_features": 64, "objective": 2.0, "outer_gap": 0.1}, params={"C": "auto"})
    text = html.unescape(page([replace(run, training={"rows": 400, "columns": 64})]))
    assert "We fitted the method “Feature Generating Machine” (Tan et al., 2014; gramplane 0." in text
    assert "to data of 400 rows × 64 columns, with C = 0.5 (derived from the data). 50 of 64 features were selected." in text
    assert "Accuracy on held-out rows was 91.0 %" in text and "within 5 % of the optimum, over all features.</p>" in text
    assert "@article{tan2014towards" in text.split('id="cite"')[1]


def test_every_method_has_a_source_and_sources_are_those_of_the_citation_file():
    root = Path(__file__).parents[3]
    cited, listed = ((root / name).read_text("utf-8") for name in ("CITATION.cff", "docs/theory/references.md"))
    entries = [entry for name in METHODS for entry in method_sources(name)]
    assert all(method_sources(name) for name in METHODS)
    for title in {re.search(r"title = \{(.*)\}", entry)[1] for entry in entries}:
        assert f"*{title}*" in listed and (title in cited or "Non-Parametric" in title)


def test_the_largest_page_stays_within_its_limit():
    rows = [{"rule": f"{'z' * 60} > {j}", "vote": j % 2, "weight": 1.0, "support": 9} for j in range(5000)]
    many = view(tables=dict.fromkeys(("rules", "groups", "covariates"), rows), scores=[score(12, 600)], history=history(500))
    assert len(page([many] * 4).encode()) < SIZE_LIMIT
