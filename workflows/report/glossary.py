"""What the words of a report mean: one sentence per heading, shown where the mouse rests and listed at the end of the page."""

import re
from collections.abc import Mapping
from functools import cache

TERMS: Mapping[str, str] = {
    # -- figures of a run ------------------------------------------------------------------------------------------------
    "accuracy on unseen rows": "Of the store scored last, else of the rows that test_share held out of the fit.",
    "R2 on unseen rows": "Share of the target's variance that is explained, on the store scored last, else on the rows held out.",
    "accuracy over the folds": "Mean of the best setting over the folds of tune: rows held out, but the setting was chosen by them.",
    "R2 over the folds": "Mean of the best setting over the folds of tune: rows held out, but the setting was chosen by them.",
    "accuracy on training rows": "Of rows that the fit has learnt from; on others it is lower.",
    "R2 on training rows": "Of rows that the fit has learnt from; on others it is lower.",
    "always the commonest class": "Accuracy of giving every row the commonest class: what a fit has to beat.",
    "area under the curve": "Of the receiver operating characteristic, on the rows scored last; 0.5 is chance, 1 the best.",
    "unseen rows": "Which rows that the fit has not seen the figure above is of.",
    "selected": "Features, kernels, groups or rules the method counts as selected; of kernels those above its threshold.",
    "columns in the data": "Columns of the store.",
    "candidates": "What there was to choose from: columns, groups, or products of columns.",
    "kernels in all": "Kernels there were to choose from.",
    "groups": "Groups there are, or groups with a weight.",
    "tasks of the data": "Tasks that are learnt together.",
    "nodes of the graph": "Nodes of the whole graph, built or not.",
    "nodes of the working set": "Nodes that took part in the last problem solved; their ancestors are among them.",
    "support rows": "Training rows that the decision function needs.",
    "rounds": "Steps of the method, each with a checkpoint; one row of the table Rounds each.",
    "steps": "Steps of a run on a stream, each with a checkpoint; one row of the table Rounds each.",
    "rounds or steps": "Steps of the run, each with a checkpoint; those of a stream take many rounds of their own.",
    "rounds counted by max_rounds": "Rounds as the parameter max_rounds counts them; one may take several steps of the run.",
    "rounds of the stream": "Updates of the weights: one per row, per batch of rows, or per row of every task.",
    "stopped by": "Why the run ended.",
    "calibration": "Folds whose decision values the probabilities of the classes were fitted to, and what that took.",
    "state": "Whether the run is finished; of one that is not, the figures are those of its last finished round.",
    "lower_bound": "The least value is not below it, for certain.",
    "upper_bound": "Value of the best model so far; the least value is not above it.",
    "objective": "Value of the problem that is minimised, at the model returned; comparable between runs of one problem only.",
    "lower bound": "The least value is not below it, for certain.",
    "upper bound": "Value of the model returned; the least value is not above it.",
    "gap": "How far the objective is from the least value, at most, in the objective's units; for what, the row certified over says.",
    "relative gap": "The gap as a share of the objective.",
    "certified over": "The problem that the gap is certified for: the whole one, or only what was chosen so far.",
    "gap of the working set": "The gap of the problem solved last, over what is in the working set; in the objective's units.",
    "gap to the exact optimum": "How far the objective is from the least value over all features, at most, in the objective's units.",
    "seconds of the run": "From the start of the run (the last, if resumed) to its saved model; starting workers and compiling included.",
    "seconds in rounds": "Sum over all rounds, those before a resume included; without starting workers and saving the model.",
    # -- rounds ----------------------------------------------------------------------------------------------------------
    "iteration": "Number of the step.",
    "round": "Rounds as max_rounds counts them: solved and looked outside.",
    "phase": "What the step did.",
    "restricted_gap": "Gap of the problem over the working set.",
    "relative_gap": "Gap as a share of the objective; the fit ends at tol.",
    "n_selected": "What counts as selected after the step; of several classes the most.",
    "n_kernels": "Kernels there are so far.",
    "n_working": "Groups, or features, in the working set.",
    "engine": "How the problem is solved.",
    "eigenpairs_at_most": "Eigenpairs of the kernel at most; how many there are shows on the way.",
    "driver_bytes_at_most": "What this process holds if the kernel has that many eigenpairs.",
    "eigensolver": "Where the eigensolver's block of columns lies.",
    "graph": "Where the graph comes from: how nearest neighbours are linked, or given.",
    "n_nodes": "Nodes of the working set; their ancestors are among them.",
    "n_added": "Nodes that joined the working set.",
    "looked_at": "Nodes outside whose value was computed or bounded.",
    "bound": "Bound of the squared dual norm over the working set.",
    "worst_outside": "The same of the nodes outside; above the bound it keeps the gap open.",
    "newton_steps": "Newton steps so far.",
    "machines": "Decision functions still worked on: one, or one per class or task.",
    "epoch": "Passes over all rows so far.",
    "rows": "Rows used so far, or rows scored.",
    "loss": "Mean loss of the rows of the step, each before it was learnt from.",
    "mean_loss": "Mean loss of all rows so far, each before it was learnt from.",
    "penalty": "Value of the penalty, or (as a parameter) its weight or kind.",
    "regret": "Mean loss along the stream, minus that of the last model on the same rows.",
    "n_groups": "Groups with a weight.",
    "train_accuracy": "Share of training rows told right.",
    "test_accuracy": "Share of rows told right that were held out of the fit.",
    "train_r2": "Explained share of the variance of training rows.",
    "n_answers": "Different answers that training rows get: classes, or of numbers 1 where all are the same and else 2.",
    "test_r2": "Explained share of the variance of rows held out of the fit.",
    "tasks": "Block tasks that all passes of the round sent to the workers; of data with tasks, the tasks.",
    "bytes": "Size of the blocks those tasks worked on: read from the store, or computed, like products of columns and kernel matrices.",
    "retries": "Tasks that were tried again after an error.",
    "validation": "Score of the best single kernel on rows set aside inside the fit.",
    "seconds": "Seconds of the round on the clock.",
    # -- selected things -------------------------------------------------------------------------------------------------
    "weight": "Weight in the decision function, of a column as the fit scaled it: coef_ over the factor of the column, so that units do "
    "not matter; of columns that were not scaled coef_ itself. In brackets the class or task it is of.",
    "feature": "Name of the column; x0, x1, ... without names; a product of two has a *, and a column of a map its number in brackets.",
    "column": "Number of the column in the store.",
    "task": "Name of the task.",
    "features": "Features with a weight.",
    "group": "Label of the group.",
    "class": "The class that the machine tells from the others.",
    "stop": "Why it ended.",
    "step": "Number of the step.",
    "machine": "The class the weights are of, or the machine compared.",
    "norm": "Length of the weights over all tasks, of a column as the fit scaled it.",
    "support": "Training rows: that a rule holds for, that carry a decision, or of a class.",
    "kernel": "Words behind it are its normalisation: trace (mean diagonal 1), cosine (diagonal 1), centre (mean zero in feature space).",
    "alignment": "How well the kernel agrees with the labels.",
    "depth": "Steps from a root of the graph; for sets, their size.",
    "size": "Members of the group.",
    "intercept": "Constant of the decision function.",
    "label": "The class.",
    # -- kernels over rows, rankings -------------------------------------------------------------------------------------
    "primal": "Objective of the kernel of this round.",
    "dual": "Bound of this round: the least objective is not below it.",
    "rank": "Positive eigenvalues of the kernel matrix; in a table the place in the order.",
    "eigenvalue": "Of the learned kernel matrix.",
    "share": "Share of the sum of all.",
    "pairs": "Pairs that the loss looks at.",
    "cap_used": "Share of the cap of the kernel's size that is used.",
    "row": "Number of the row in the store.",
    "ranking": "What the order is by.",
    "chance": "The same figure of a random order.",
    "index": "Place of the eigenvalue, largest first.",
    # -- scores ----------------------------------------------------------------------------------------------------------
    "store": "Where the scored rows lie.",
    "accuracy": "Share of rows told right.",
    "mean_accuracy": "Mean of the accuracies of the tasks.",
    "mean_auc": "Mean of the areas of the tasks that have both classes.",
    "mean_r2": "Mean over the tasks.",
    "median_r2": "Median over the tasks.",
    "log_loss": "Mean of -log p over the rows, p the probability of the class that the row has; 0 is best.",
    "brier_score": "Mean square of the probabilities less what is (of several classes summed over them); 0 is best.",
    "auc": "Area under the receiver operating characteristic; 0.5 is chance.",
    "precision": "Of the rows told to be of the class, or of the first n of a ranking, the share that is.",
    "recall": "Of the rows of the class, the share told.",
    "f1": "Harmonic mean of precision and recall.",
    "r2": "Explained share of the target's variance; 1 at best.",
    "rows_are": "Which rows were scored: those held out of the fit, those it has learnt from, or those of another store.",
    "majority": "Accuracy of always answering the commonest class of these rows.",
    "majority_class": "The commonest class of these rows.",
    "balanced_accuracy": "Mean over the classes of the share of their rows told right: rare classes count like others.",
    "average_precision": "Mean precision over the places of the relevant rows (of a class: of its rows), the surest first; 1 at best.",
    "true class": "The class of the rows.",
    "predicted": "What they were told to be.",
    "rmse": "Root of the mean squared error.",
    "rmse_of_mean": "The same of always answering the mean of these rows.",
    "mae": "Mean absolute error.",
    "mse": "Mean squared error.",
    "deviation": "Standard deviation over the folds.",
    "measure": "The score that decides, as scikit-learn names it; larger is better.",
    "standard_error": "Of the mean over the folds.",
    "folds": "The score of every fold.",
    "point": "Number of the setting in the grid.",
    # -- configuration ---------------------------------------------------------------------------------------------------
    "cluster": "Where block tasks ran.",
    "data": "The store.",
    "data_replaced": "The store has other content now than when the run was made from it.",
    "data_digest": "Checksum of the store's content; a run never continues on other data.",
    "seed": "Root of all random numbers.",
    "solve_on": "Where machines are solved: on a matrix in memory, or by passes over the store.",
    "rounds_at_most": "Rounds, if nothing stops the run before.",
    "passes_at_most": "Passes over all columns, if nothing stops the run before; a round may send further tasks for the columns it chose.",
    "tasks_per_pass": "Block tasks of one pass over all the data; a round may make several passes.",
    "bytes_read_per_pass": "Bytes of the store that one pass over all the data reads.",
    "task_bytes": "Memory of the largest block task, at most; where that depends on a rank which shows on the way, at the least rank.",
    "task_bytes_at_most": "Memory of the largest block task at the greatest rank there may be, within what the driver may hold.",
    "driver_memory": "Memory that the process which started the run may hold: half the machine's, where none was named.",
    "notes": "What the fit decided, told before it began.",
    "moment_bytes": "Memory of the sums over rows.",
    "matrix_bytes": "Memory of the matrices that machines are solved on.",
    "iterations_at_most": "Rounds, if nothing stops the run before.",
    "grams": "Where kernel matrices lie: in memory, in a store, or computed again in every pass.",
    "gram_reason": "Why they lie there.",
    "machines_solved_on": "Where a weighted sum of the kernels lies that machines are solved on.",
    "gram_block_rows": "Rows of a block of a kernel matrix.",
    "gram_bytes": "Size of all kernel matrices.",
    "gram_store": "The store of kernel matrices.",
    "kernels": "Kernels there are to choose from.",
    "learning_tasks": "Tasks of the data.",
    "epochs": "Passes over all rows.",
    "driver_bytes": "Memory that the process which started the run holds at most, beside its programs.",
    "driver_holds": "What it is made of, item by item.",
}
"""Headings, without what is in brackets behind them."""

STOPS: Mapping[str, str] = {
    "max_rounds": "the largest number of rounds was reached",
    "max_iter": "the largest number of steps was reached before the tolerance",
    "max_nodes": "the working set reached its largest size",
    "chance": "no further feature stands out of what chance gives (max_rounds=auto)",
    "n_features_to_select": "as many features as asked for are selected",
    "tol": "the gap fell to the tolerance",
    "gap": "the gap fell to the tolerance",
    "outer_tol": "the test for the exact optimum fell to outer_tol",
    "optimal": "no feature violates the conditions by more than inner_tol: adding more changes nothing",
    "certified": "the gap over all nodes fell to the tolerance",
    "depth": "the gap fell to the tolerance, over nodes down to a depth: nothing is certified of deeper ones",
    "frontier": "no node next to the working set violates the conditions",
    "rest": "the objective fell by less than rest in a round; the gap may still be above tol (rest=none goes on)",
    "decrease": "steps lower the objective by less than decrease_tol",
    "size": "as many bases as asked for are found",
    "gain": "no further basis is worth its place",
    "bounds": "the upper bound lies below the lower one by more than rounding: the fit is not certified",
    "stalled": "the gap cannot be closed further in floating point",
    "no_progress": "no step lowers the objective any more",
    "flat": "the objective does not depend on the weights",
    "uniform": "weights are uniform, there is nothing to search",
    "single": "the best single kernel was chosen",
    "end": "the end of the path, or of the text, was reached",
    "epochs": "all epochs are done",
    "closed form": "the optimum is a closed form",
    "n_import": "as many import vectors as asked for were chosen",
    "import_tol": "one more import vector lowers the objective by less than import_tol",
    "assignment": "no unlabelled row changes its class any more",
}
"""Reasons of a stop."""


_OF_SCORES = {
    " over the folds": "Mean of the best setting over the folds of tune, as scikit-learn scores it: larger is better.",
    "_deviation": "Standard deviation of this score over the folds.",
    "_folds": "This score on every fold.",
}
"""Endings of headings behind the name of a score."""


@cache
def glossary() -> Mapping[str, str]:
    """Return the words that reports share, and those of every system."""
    from ...pipeline.registry import METHODS

    return {**{name: meaning for info in METHODS.values() for name, meaning in info.charts.glossary.items()}, **TERMS}


def explain_heading(heading: str) -> str:
    """Return what a heading means, or nothing: ``weight[a]`` is a ``weight``, ``seconds_solve`` a part of the seconds."""
    name = re.sub(r"\[.*\]$", "", heading, flags=re.DOTALL)
    if name in glossary():
        return glossary()[name]
    for ending, meaning in _OF_SCORES.items():
        if name.endswith(ending):
            return meaning
    return f"Seconds of the part {name.removeprefix('seconds_')!r} of the round." if name.startswith("seconds_") else ""


def stop_text(stop: object) -> str:
    """Return the reason of a stop with what it means."""
    return f"{stop}: {STOPS[stop]}" if isinstance(stop, str) and stop in STOPS else str(stop or "")


def words(meanings: Mapping[str, str]) -> list[dict[str, str]]:
    """Return ``{"name", "meaning"}`` of the headings that have a meaning, ``weight[a]`` and ``weight[b]`` as one."""
    merged = {re.sub(r"\[.*\]$", "[…]", name, flags=re.DOTALL): meaning for name, meaning in meanings.items()}
    return [{"name": name, "meaning": meaning} for name, meaning in sorted(merged.items()) if meaning]
