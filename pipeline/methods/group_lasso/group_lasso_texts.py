"""What the documentation of both group lasso estimators shares."""

PARAMETERS = """
    Parameters
    ----------
    penalty
        ``"gl"``: ``lam sum_g sqrt(d_g) ||w_g||``; ``"sgl"``: ``lam sum_g (sqrt(d_g) ||w_g|| + r_g ||w_g||_1)``; ``"egl"``: the same, with a
        threshold that decays over the rounds (``rho``); ``"l1"``: ``lam ||w||_1``.
    lam
        Weight of the penalty beside the *mean* loss.
    gamma
        Dual averaging: weight of the proximity term, ``gamma / sqrt(t)`` in round t. FOBOS: steps are ``1 / (gamma sqrt(t))``.
    groups
        One label per feature, or a list of index arrays, which may overlap; ``None``: a store's own, else every feature by itself.
    r
        Share of the l1 norm inside groups (``"sgl"``, ``"egl"``): one number, or one per group.
    rho
        ``"egl"``: the threshold of round t is ``lam r_g + rho gamma / sqrt(t)``.
    algorithm
        ``"da"``: dual averaging over the rows as they come; ``"fobos"``: forward-backward splitting over the same; ``"fista"``: the batch
        optimum, with its duality gap.
    epochs
        Passes over the rows.
    batch_size
        Rows of a round.
    shuffle
        Take blocks of rows, and the rows inside, in an order drawn from ``random_state``, a new one each epoch. Not for ``partial_fit``.
    fit_intercept
        Fit an intercept, which bears no penalty; in a stream it has steps of its own, whatever ``gamma``, ``batch_size`` and the scale of
        the features.
    average
        Predict with the mean of all iterates; costs a sweep over all features per round.
    loss
        ``"logistic"``, ``"squared"`` or ``"hinge"``; ``"auto"``: logistic for classes, squared for real targets.
    tol, max_iter
        Batch only: relative duality gap at which the fit ends, and steps at most.
"""

CLASS_WEIGHT = """    class_weight
        ``"balanced"`` or a dict of class factors of the loss; only a dict for ``partial_fit``.
"""

REST = """    cluster
        Where passes of the batch algorithm run: ``None`` in-process, ``"local:4"``, ``"tls://..."`` …
    random_state
        Seed of the order of rows.
    verbose
        Log one line per step.
    callbacks
        Functions called with an event record per step.

    Attributes
    ----------
    coef_
        ``(n_machines, n_features)`` weights, a sparse array from 50,000 features; zeros are exact.
    intercept_
        ``(n_machines,)``.
    active_groups_
        Labels of the groups with a weight in some machine (of a list of groups: their places in it; without groups: features).
    objective_
        Mean loss of the last model plus Omega on the training rows, summed over machines; NaN after ``partial_fit``.
    dual_gap_
        Duality gap of the batch optimum; NaN for streams, which have no certificate.
    n_iter_
        Rounds that are closed; of the batch, steps.
    converged_
        Whether what was asked for was reached: the epochs, or the gap.
    history_
        Figures of every step: rows, losses as they came, penalty, features and groups.
    n_features_in_
        Width of the rows.
"""
