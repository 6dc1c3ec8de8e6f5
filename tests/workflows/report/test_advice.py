"""What a page says of a run in words: how well it does and on which rows, what to try next, what cannot be compared."""

from __future__ import annotations

import html
import math
import shlex

import pytest

from gramplane.pipeline.records.run_view import TRAINING_ROWS, RunView
from gramplane.workflows.report.advice import RULES, list_advice
from gramplane.workflows.report.render import page, sections
from gramplane.workflows.report.words import best_known, lead, majority_share, notices
from tests.workflows.report.pages import TRIALS, history, numbers, score, view


def plain(**more: object) -> RunView:
    """Return a run of which there is nothing to say."""
    quiet = {
        "history": [], "summary": {"n_selected": 5, "n_features": 64, "stop": "outer_tol", "objective": 1.0, "gap": 1e-9},
        "params": {"B": 10, "C": 1.0, "class_weight": None}, "selected": [],
    }  # fmt: skip
    return view(**{**quiet, **more})


def texts(run: RunView) -> str:
    return "\n".join(f"{item.text} {item.command}" for item in list_advice(run))


def test_a_run_without_faults_gets_no_advice():
    assert list_advice(plain()) == [] and all(section.name != "next" for section in sections([plain(scores=[score()])]))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"scores": [score(accuracy=0.54)]}, 'Accuracy 54.0 % on 300 rows of held is no better than always predicting "label 1" (54.3 %).'),
        ({"scores": [{**numbers(), "r2": -0.2}]}, "R2 -0.200 on 700 rows of held is no better than always predicting the mean (0)."),
        (
            {"history": [{"train_accuracy": 0.8}], "training": {"classes": {"a": 80, "b": 20}}},
            "Accuracy 80.0 % on training rows is no better than",
        ),
        ({"summary": {"n_selected": 0}, "tables": {"certificates": [{"lambda_max": 0.25}]}}, "Nothing is selected"),
        ({"summary": {"n_selected": 0}, "params": {"lam": 1.0}, "tables": {"certificates": [{"lambda_max": 0.25}]}}, "from lam = 0.25 on"),
        ({"summary": {"n_selected": 64, "n_features": 64}}, "All 64 features are selected"),
        ({"training": {"classes": {"a": 97, "b": 3}}}, 'Class "b" is rare: 3 of 100 rows (3.0 %).'),
        (
            {"scores": [score(classes=[{"label": "a", "support": 990}, {"label": "b", "support": 10}])]},
            'Class "b" is rare: 10 of 1,000 rows',
        ),
        (
            {"training": {"widths": [{"feature": "a", "width": 0.5}, {"feature": "b", "width": 79_300.0}]}, "params": {"scale": None}},
            "b spans 79,300; a spans 0.5",
        ),
        (
            {"scores": [score(accuracy=0.7)], "history": [{"train_accuracy": 0.95}]},
            "The model overfits: accuracy 0.950 on training rows, 0.700 on 300 rows",
        ),
        (
            {"summary": {"stop": "max_iter", "objective": 10.0, "gap": 2.0}, "params": {"max_iter": 50}},
            "Stopped at max_iter=50, at most 2 (20 %) above the optimum.",
        ),
        (
            {"summary": {"stop": "max_rounds", "objective": 10.0, "gap": 0.0, "outer_gap": 2.0}, "params": {"max_rounds": 5}},
            "--set max_rounds=10",
        ),
        ({"trials": TRIALS, "params": {"C": 10.0, "v": 0.5}, "method": "mkl"}, "C=10 is the largest value compared"),
        ({"summary": {"classes": [0, 1]}}, "Nothing was measured on rows outside the fit."),
        ({"summary": {"classes": [0, 1]}, "history": [{"test_accuracy": 0.9}]}, "Only one figure is known of the held-out rows."),
        ({"summary": {"remark": "two rows are alike"}}, "two rows are alike"),
        ({"summary": {"warnings": ["constant prediction", "rare class"]}}, "constant prediction rare class"),
        (
            {"scores": [score(path=[{"n_selected": k, "accuracy": a} for k, a in ((5, 0.7), (10, 0.895), (50, 0.9))])]},
            "accuracy 0.895 with 10 features and accuracy 0.900 with 50 features",
        ),
        (
            {
                "scores": [
                    {**numbers(), "r2_interval": [0.7, 0.86], "path": [{"n_selected": k, "r2": a} for k, a in ((9, 0.77), (50, 0.8))]}
                ]
            },
            "R2 0.770 with 9 features and R2 0.800 with 50 features, on 700 rows.",
        ),
    ],
)
def test_every_rule_speaks_where_it_should(more: dict, words: str):
    run = plain(**more)
    assert words in texts(run)
    assert words.split(" (")[0] in html.unescape(page([run])), "and stands on the page"


@pytest.mark.parametrize(
    "more",
    [
        {"scores": [score(accuracy=0.9)]},
        {"scores": [numbers()]},
        {"training": {"classes": {"a": 97, "b": 3}}, "params": {"class_weight": "balanced"}},
        {"training": {"classes": {"a": 97, "b": 3}}, "params": {}},
        {"training": {"widths": [{"feature": "a", "width": 1.0}, {"feature": "b", "width": 900.0}]}, "params": {"scale": None}},
        {"training": {"widths": [{"feature": "a", "width": 0.1}, {"feature": "b", "width": 900.0}]}, "params": {"scale": "auto"}},
        {"summary": {"stop": "max_iter", "objective": 10.0, "gap": 0.01}},
        {"trials": TRIALS, "params": {"C": 1.0, "v": 0.25}},
        {
            "summary": {"stop": "max_rounds", "objective": 10.0, "gap": 0.0, "outer_gap": 2.0},
            "params": {"max_rounds": 2},
            "trials": [{"C": 1.0, "rounds": k, "accuracy": 0.9 - k / 100} for k in (1, 2, 3)],
        },
        {"summary": {"classes": [0, 1]}, "state": "running"},
        {"summary": {"classes": [0, 1]}, "method": "spe"},  # a map: its labels are colours
        {"scores": [score(path=[{"n_selected": k, "accuracy": a} for k, a in ((5, 0.7), (10, 0.8), (50, 0.9))])]},
        {"scores": [{**numbers(), "r2_interval": [0.79, 0.81], "path": [{"n_selected": k, "r2": a} for k, a in ((9, 0.77), (50, 0.8))]}]},
        {"scores": [{**numbers(), "path": [{"n_selected": k, "r2": None} for k in (9, 50)]}]},
    ],
)
def test_no_rule_speaks_where_it_should_not(more: dict):
    assert texts(plain(**more)) == ""


def test_a_grid_is_not_sent_where_the_method_takes_no_value():
    run = plain(trials=TRIALS, params={"C": 1.0, "v": 0.0}, method="mkl")
    assert "v=0" not in texts(run), "below 0 there is none"
    assert "C=0.1 is the smallest value compared" in texts(plain(trials=TRIALS, params={"C": 0.1, "v": 0.25}, method="mkl"))


def test_commands_can_be_typed():
    data = "/a folder/it's"
    run = plain(scores=[score(accuracy=0.1)], settings={"data": data}, path="/runs/a b")
    (command,) = [item.command for item in list_advice(run) if item.command.startswith("gramplane tune")]
    words = shlex.split(command)
    assert words[:3] == ["gramplane", "tune", "fgm"] and words[words.index("--data") + 1].endswith("a folder/it's")
    assert words[words.index("--grid") + 1] == "B=2,5,10"


def test_advice_never_contradicts_itself():
    """100 features of 20,000 at 400 rows: the fit overfits, stopped early, and fewer features are better."""
    path = [{"n_selected": k, "accuracy": a} for k, a in ((10, 0.72), (100, 0.64))]
    rounds = [
        {"iteration": 1, "train_accuracy": 0.9, "test_accuracy": 0.72},
        {"iteration": 2, "train_accuracy": 1.0, "test_accuracy": 0.64},
    ]
    stopped = {"stop": "max_rounds", "objective": 10.0, "outer_gap": 2.0, "n_selected": 100}
    run = plain(scores=[score(accuracy=0.64, path=path)], history=rounds, summary=stopped, params={"B": 10, "max_rounds": 10})
    (item,) = list_advice(run)
    assert "Fewer features are as good" in item.text and "tune" in item.command and "more rounds" not in texts(run)
    every = plain(
        summary={**stopped, "classes": [0, 1], "warnings": ["odd"]},
        params={"C": 1.0, "class_weight": None, "max_rounds": 5, "scale": None},
        training={"classes": {"a": 97, "b": 3}, "widths": [{"feature": "a", "width": 0.1}, {"feature": "b", "width": 900.0}]},
    )  # fmt: skip
    assert len(list_advice(every)) == 3


def test_there_are_as_many_rules_as_are_tested():
    assert len(RULES) == 11


# -- what is known, and of which rows ------------------------------------------------------------------------------------------


def test_unseen_rows_come_before_folds_and_folds_before_training_rows():
    trained = {"history": [{"train_accuracy": 0.99}]}
    assert best_known(plain(**trained), "accuracy").where == "training rows"
    assert best_known(plain(**trained, trials=TRIALS), "accuracy").where == "2 folds"
    assert best_known(plain(history=[{"train_accuracy": 0.99, "test_accuracy": 0.7}], trials=TRIALS), "accuracy").where == "held-out rows"
    assert best_known(plain(**trained, scores=[score()], trials=TRIALS), "accuracy").where == "300 rows of held"
    both = plain(scores=[score(), score(which=TRAINING_ROWS, accuracy=1.0)])
    assert best_known(both, "accuracy").value < 1, "a score of training rows is none of unseen ones"
    assert math.isnan(best_known(plain(), "accuracy").value)


def test_training_rows_are_called_so():
    run = plain(history=[{"train_accuracy": 0.93}], training={"classes": {"a": 60, "b": 40}})
    told = " ".join(lead(run))
    assert '93.0 % of training rows correct. Always predicting "a": 60.0 %.' in told
    assert "This figure is optimistic: the model was trained on these rows." in told
    scored = plain(scores=[score(which=TRAINING_ROWS)])
    text = page([scored])
    assert "These figures are of 300 training rows. They are optimistic: the model was trained on these rows." in text
    assert "accuracy on unseen rows" not in text


def test_the_first_words_of_a_page():
    told = " ".join(lead(plain(scores=[score()])))
    assert '262 of 300 rows of held correct (87.3 %, 95 % CI 83.1–90.6 %). Always predicting "label 1": 54.3 %.' in told
    assert "5 of 64 features selected. Certificate: the objective is within 1e-07 % of the optimum." in told
    told = " ".join(lead(plain(scores=[numbers()])))
    assert "R2 0.7" in told and "on 700 rows of held" in told and "always predicting the mean: 0.9" in told
    folds = " ".join(lead(plain(trials=TRIALS)))
    assert "Accuracy 90.0 % on average over 2 folds." in folds and "optimistic" not in folds


def test_the_majority_is_of_the_rows_scored_or_of_the_data():
    assert majority_share(plain(scores=[score()]))[0] == "label 1"
    assert majority_share(plain(training={"classes": {"a": 3, "b": 9}})) == ("b", 0.75)
    assert math.isnan(majority_share(plain())[1])


# -- runs side by side -----------------------------------------------------------------------------------------------------------


def test_runs_on_different_data_are_said_to_be():
    one, two = (view(name=name, settings={"data": f"/stores/{name}", "data_digest": name * 64}) for name in "ab")
    (told,) = notices([one, two])
    assert told.startswith("These runs were fitted to different data: a to a (aaaaaaaa) and b to b (bbbbbbbb). Differences")
    assert told in page([one, two]) and notices([one, view(name="c", settings=one.settings)]) == []
    assert notices([one, view()]) == [], "a run that does not know its data is not said to differ"


def test_runs_scored_on_different_rows_are_said_to_be():
    first, second = view(name="a", scores=[score()]), view(name="b", scores=[score(n=200)])
    assert "a on 300 rows of held and b on 200 rows of held" in notices([first, second])[0]
    assert "b on none" in notices([first, view(name="b")])[0]
    assert notices([first, view(name="b", scores=[score()])]) == []


def test_a_comparison_has_one_curve_for_each_run_and_names_them():
    text = page([view(name="one", scores=[score()]), view(name="two", scores=[score(seed=4)], history=history(3))])
    assert "one: area 0.920" in text and "two: area 0.920" in text and "one: confusion matrix" in text
    assert text.count("<h3>ROC curve ") == 1
