"""SocialStrengthRanker: what is solved, uses of the scores, forms of data, a saved model, bad input, the planted community."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import roc_auc_score

from gramplane.kernels.ranking.user_kernels import PAIR_KERNELS, incidence_kernel
from gramplane.pipeline import SocialStrengthRanker
from gramplane.pipeline.methods.social_strength.model import SocialModel
from gramplane.pipeline.methods.social_strength.scores import direct_scores, hit_rates, user_scores
from gramplane.pipeline.synthetic.social_graph import VIEWS, social_graph
from gramplane.storage import DataError, read_model, write_model
from tests.support.oracles import social as oracle
from tests.support.social import links, normalise_row_maximum, numbers, problem, training_pairs

# -- what is solved ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PAIR_KERNELS)
@pytest.mark.parametrize("normalize", ["row_max", "cosine"])
def test_weights_and_scores_are_those_of_the_definition(kind, normalize):
    raw, pairs, z = problem()
    assert np.linalg.eigvalsh(raw[1])[0] < -0.1
    machine = SocialStrengthRanker(0.05, kind, normalize=normalize, tol=1e-9).fit(raw, pairs, z)
    views = [(normalise_row_maximum if normalize == "row_max" else oracle.normalise_cosine)(K) for K in raw]
    value, theta = oracle.best_alignment(views, links(pairs, z, len(raw[0])))
    assert machine.alignment_ == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(machine.kernel_weights_, theta / theta.sum(), atol=2e-4)
    theta = machine.model_.theta
    K = np.tensordot(theta, views, 1)
    Kp = oracle.similarity_matrix(views, theta, pairs, pairs) if kind == "similarity" else oracle.pair_matrix(K, pairs, pairs, kind)
    best, f = oracle.logistic_optimum(Kp, z, 0.05)
    assert machine.objective_ == pytest.approx(best, abs=1e-6)
    # The first step weighs the views; no pair has a coefficient yet.
    assert machine.history_["objective"][0] == pytest.approx(oracle.objective(Kp, z, 0.05, np.zeros(len(z))))
    assert 0 <= machine.dual_gap_ <= 1e-9 and machine.converged_
    np.testing.assert_allclose(machine.decision_function(pairs), f, atol=2e-3)
    np.testing.assert_array_equal(machine.pairs_, pairs)
    every = np.array([(u, v) for u in range(4) for v in range(24)])
    given = (views, theta, every, pairs) if kind == "similarity" else (K, every, pairs, kind)
    expected = (oracle.similarity_matrix if kind == "similarity" else oracle.pair_matrix)(*given) @ machine.coef_
    np.testing.assert_allclose(machine.score_users([0, 1, 2, 3]).ravel(), expected, atol=1e-4)
    np.testing.assert_allclose(machine.decision_function(every), expected, atol=1e-4)
    np.testing.assert_allclose(machine.predict_proba(every), 1 / (1 + np.exp(-expected)), atol=1e-4)
    np.testing.assert_allclose(machine.score_users([2], direct=True)[0], K[2], atol=1e-5)


def test_off_diagonal_alignment_target_and_uniform_weights():
    raw, pairs, z = problem(seed=1)
    views, Y = [normalise_row_maximum(K) for K in raw], links(pairs, z, 24)
    machine = SocialStrengthRanker(alignment="off-diagonal").fit(raw, pairs, z)
    value, _ = oracle.best_alignment(views, Y, oracle.without_diagonal)
    assert machine.alignment_ == pytest.approx(value, abs=1e-5)
    groups = normalise_row_maximum(incidence_kernel(np.random.default_rng(3).random((24, 30)) < 0.3))
    np.fill_diagonal(groups, 1.0)
    for target in (groups, sp.csr_array(groups)):
        real = SocialStrengthRanker().fit(raw, pairs, z, target)
        assert real.alignment_ == pytest.approx(oracle.best_alignment(views, groups)[0], abs=1e-5)
    lopsided = np.triu(groups) * 2 - np.diag(np.diag(groups))
    np.testing.assert_allclose(SocialStrengthRanker().fit(raw, pairs, z, lopsided).kernel_weights_, real.kernel_weights_, atol=1e-6)
    equal = SocialStrengthRanker(weights="uniform").fit(raw, pairs, z)
    np.testing.assert_allclose(equal.kernel_weights_, 1 / 3)
    assert equal.alignment_ == pytest.approx(oracle.alignment(np.sum(views, axis=0), Y), abs=1e-5)
    assert machine.model_.figures["uniform_alignment"] <= machine.alignment_ and (machine.alignments_ <= machine.alignment_).all()


def test_users_that_nothing_names_take_no_part_in_the_alignment():
    raw, pairs, z = problem(20)
    raw = np.array([normalise_row_maximum(K) for K in raw])
    keep = np.unique(pairs)
    assert len(keep) == 20
    wider = np.array([np.block([[K, 0.1 * K[:, :4]], [0.1 * K[:4], np.eye(4) + 0 * K[:4, :4]]]) for K in raw])
    # Views that were shifted have the least eigenvalue zero, to either side of it by rounding, which depends on the processor.
    for K in wider:
        assert np.linalg.eigvalsh(K)[0] > -1e-12
    small, large = (SocialStrengthRanker(normalize="none").fit(stack, pairs, z) for stack in (raw, wider))
    np.testing.assert_allclose(large.kernel_weights_, small.kernel_weights_, atol=1e-5)
    assert large.alignment_ == pytest.approx(small.alignment_, abs=1e-6)


def test_order_of_users_views_and_pairs_and_scales_of_views_change_nothing():
    raw, pairs, z = problem(seed=2)
    rng = np.random.default_rng(0)
    base = SocialStrengthRanker(0.05, tol=1e-9).fit(raw, pairs, z)
    order = rng.permutation(24)
    place = np.argsort(order)
    moved = SocialStrengthRanker(0.05, tol=1e-9).fit(raw[:, order][:, :, order], place[pairs], z)
    np.testing.assert_allclose(moved.kernel_weights_, base.kernel_weights_, atol=1e-5)
    np.testing.assert_allclose(moved.decision_function(place[pairs]), base.decision_function(pairs), atol=1e-3)
    turned = SocialStrengthRanker(0.05, tol=1e-9).fit(raw[::-1] * np.array([4.0, 0.5, 7.0])[:, None, None], pairs[::-1], z[::-1])
    np.testing.assert_allclose(turned.kernel_weights_[::-1], base.kernel_weights_, atol=1e-5)
    np.testing.assert_allclose(turned.decision_function(pairs), base.decision_function(pairs), atol=1e-3)
    twice = SocialStrengthRanker(0.05, tol=1e-9).fit(raw, np.tile(pairs, (2, 1)), np.tile(z, 2))
    np.testing.assert_allclose(twice.decision_function(pairs), base.decision_function(pairs), atol=1e-3)


@pytest.mark.parametrize("kind", ["similarity", "mlpk"])
def test_import_vectors(kind):
    raw, pairs, z = problem()
    whole = SocialStrengthRanker(0.05, kind, tol=1e-9).fit(raw, pairs, z)
    few = SocialStrengthRanker(0.05, kind, n_import=5, import_tol=1e-9).fit(raw, pairs, z)
    assert len(few.coef_) <= 5 and set(map(tuple, few.pairs_)) <= set(map(tuple, pairs))
    along = few.history_["objective"]
    assert (np.diff(along) <= 1e-9).all() and few.objective_ >= whole.objective_ - 1e-9
    assert few.objective_ - few.dual_gap_ <= whole.objective_ + 1e-6
    if kind == "similarity":
        # Of rank four: as many vectors are the whole machine.
        np.testing.assert_allclose(few.decision_function(pairs), whole.decision_function(pairs), atol=1e-2)
    drawn = [SocialStrengthRanker(0.05, "mlpk", n_import=4, n_candidates=6, random_state=s).fit(raw, pairs, z).pairs_ for s in (1, 1, 2)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_steps_that_run_out_are_told():
    raw, pairs, z = problem()
    with pytest.warns(ConvergenceWarning, match="max_iter=1 ended the fit with a relative gap of"):
        cut = SocialStrengthRanker(1e-4, "mlpk", max_iter=1).fit(raw, pairs, z)
    assert not cut.converged_ and cut.dual_gap_ > 0


def test_rounds_of_newton_steps_grow_until_the_gap_closes(monkeypatch):
    raw, pairs, z = problem()
    whole = SocialStrengthRanker(1e-4, "tensor", tol=1e-8).fit(raw, pairs, z)
    assert whole.n_iter_ == 2
    monkeypatch.setattr("gramplane.pipeline.methods.social_strength.method.FIRST_ROUND_STEPS", 1)
    rounds = SocialStrengthRanker(1e-4, "tensor", tol=1e-8).fit(raw, pairs, z)
    assert rounds.n_iter_ > 3 and rounds.converged_
    assert rounds.objective_ == pytest.approx(whole.objective_, rel=1e-7)


def test_many_pairs_are_not_held_and_the_answer_is_the_same(monkeypatch):
    raw, pairs, z = problem()
    held = SocialStrengthRanker(0.01, "mlpk", tol=1e-9).fit(raw, pairs, z)
    monkeypatch.setattr("gramplane.pipeline.methods.social_strength.problem.MAX_DENSE_PAIRS", 1)
    passed = SocialStrengthRanker(0.01, "mlpk", tol=1e-9).fit(raw, pairs, z)
    assert passed.objective_ == pytest.approx(held.objective_, rel=1e-7)
    np.testing.assert_allclose(passed.decision_function(pairs), held.decision_function(pairs), atol=1e-3)


# -- uses --------------------------------------------------------------------------------------------------------------------------


def test_recommended_users_are_the_strongest_others():
    raw, pairs, z = problem()
    machine = SocialStrengthRanker(0.05).fit(raw, pairs, z)
    for direct in (False, True):
        values = machine.score_users([5], direct=direct)[0]
        order = [v for v in np.argsort(-values, kind="stable") if v != 5]
        assert machine.recommend(5, 4, direct=direct).tolist() == order[:4]
        assert machine.recommend(5, 3, exclude=order[:2], direct=direct).tolist() == order[2:5]
    # What was learnt is asked unless the plain sum is.
    learnt, plain = (machine.recommend(5, 4, direct=direct).tolist() for direct in (False, True))
    assert machine.recommend(5, 4).tolist() == learnt != plain
    assert len(machine.recommend(0, 500)) == 23
    linked = links(pairs, z, 24) - np.eye(24)
    users = np.arange(24)
    for score in (user_scores(machine.model_), direct_scores(machine.model_)):
        found = hit_rates(score, linked, users, 5)
        tops = [np.argsort(-np.where(np.arange(24) == u, -np.inf, score(np.array([u]))[0]), kind="stable")[:5] for u in users]
        expected = [np.mean([linked[u, top[:m]].mean() for u, top in zip(users, tops)]) for m in range(1, 6)]
        np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("score", ["decision", "probability"])
def test_recommended_groups_have_the_strongest_members(score):
    raw, pairs, z = problem()
    machine = SocialStrengthRanker(0.05).fit(raw, pairs, z)
    members = np.random.default_rng(0).random((24, 9)) < 0.3
    values = machine.score_users([2])[0]
    values = 1 / (1 + np.exp(-values)) if score == "probability" else values
    totals = np.where(members[2], -np.inf, [values[members[:, g]].sum() for g in range(9)])
    order = np.argsort(-totals, kind="stable")
    assert machine.recommend_groups(2, sp.csr_array(members.astype(int) * 5), 3, score=score).tolist() == order[:3].tolist()
    assert not members[2, machine.recommend_groups(2, members, 50)].any()
    large = np.argsort(-members.sum(axis=0), kind="stable")[:4]
    assert set(machine.recommend_groups(2, members, 9, n_popular=4)) == {g for g in large if not members[2, g]}


def test_labels_are_carried_over_the_strengths():
    raw, pairs, z = problem()
    circle = np.resize(np.arange(3), 24)
    machine = SocialStrengthRanker(0.05).fit(raw, pairs, z)
    labels = np.where(np.arange(24) < 12, (circle == 1).astype(float), np.nan)
    F = 1 / (1 + np.exp(-machine.score_users(np.arange(24))))
    W = 0.5 * (F + F.T) - np.diag(np.diag(F))
    found = machine.label_users(labels)
    np.testing.assert_allclose(found, oracle.harmonic(W, labels), atol=1e-8)
    assert found.min() >= 0 and found.max() <= 1
    assert roc_auc_score((circle == 1)[12:], found[12:]) > 0.8
    with pytest.raises(ValueError, match=r"labels have shape \(3,\); there are 24 users"):
        machine.label_users([0, 1, 0])


@pytest.mark.parametrize("normalize", ["row_max", "cosine", "none"])
def test_new_users_are_scored_as_if_they_had_been_there(normalize):
    raw, pairs, z = problem()
    raw = np.array([normalise_row_maximum(K) for K in raw]) if normalize == "none" else raw
    machine = SocialStrengthRanker(0.05, normalize=normalize).fit(raw, pairs, z)
    chosen = [3, 8]
    found = machine.score_new_users(raw[:, chosen], np.stack([np.diag(K)[chosen] for K in raw]))
    others = np.setdiff1d(np.arange(24), chosen)
    np.testing.assert_allclose(found[:, others], machine.score_users(chosen)[:, others], atol=1e-5)
    plain = SocialStrengthRanker(0.05, "tensor", normalize="none").fit(np.array([normalise_row_maximum(K) for K in raw]), pairs, z)
    rows = np.array([normalise_row_maximum(K)[chosen] for K in raw])
    np.testing.assert_allclose(plain.score_new_users(rows), plain.score_users(chosen), atol=1e-5)
    for bad, told in ((raw[:2, chosen], r"the model needs \(3, n_new, 24\)"), (raw[:, chosen] * np.nan, "finite")):
        with pytest.raises(ValueError, match=told):
            machine.score_new_users(bad)
    with pytest.raises(ValueError, match=r"diagonals have shape \(3,\)"):
        machine.score_new_users(raw[:, chosen], np.ones(3))


# -- as an estimator ---------------------------------------------------------------------------------------------------------------


def test_parameters_fitted_state_and_forms_of_the_views():
    machine = SocialStrengthRanker(2.0, "tensor", n_import=3, kernels=["linear"])
    assert clone(machine).get_params() == machine.get_params()
    for call in (lambda m: m.decision_function([[0, 1]]), lambda m: m.recommend(0), lambda m: m.label_users([0.0])):
        with pytest.raises(NotFittedError):
            call(SocialStrengthRanker())
    raw, pairs, z = problem()
    base = SocialStrengthRanker().fit(raw, pairs, z)
    for form in (list(raw), raw.astype(np.float32)):
        found = SocialStrengthRanker().fit(form, pairs.tolist(), z.astype(bool))
        np.testing.assert_allclose(found.kernel_weights_, base.kernel_weights_, atol=1e-6)
    assert numbers(SocialStrengthRanker().fit(raw, pairs, z)) == numbers(base)
    assert numbers(SocialStrengthRanker(grams="recompute").fit(raw, pairs, z)) == numbers(base)


@pytest.mark.parametrize("kind", ["similarity", "mlpk"])
def test_a_saved_model_gives_the_same_scores(tmp_path, kind):
    raw, pairs, z = problem()
    machine = SocialStrengthRanker(0.05, kind).fit(raw, pairs, z)
    write_model(tmp_path / "model", machine.model_)
    loaded = SocialStrengthRanker.from_model(read_model(tmp_path / "model", SocialModel), machine._config().model_dump(), [])
    np.testing.assert_array_equal(loaded.decision_function(pairs), machine.decision_function(pairs))
    assert loaded.recommend(3).tolist() == machine.recommend(3).tolist() and numbers(loaded) == numbers(machine)
    assert loaded.get_params()["C"] == 0.05 and loaded.pair_kernel == kind


# -- bad input ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"pairs": np.zeros((3, 3))}, r"pairs have shape \(3, 3\); they must be \(n_pairs, 2\)"),
        ({"z": [0, 1]}, r"z has shape \(2,\); there are 60 pairs"),
        ({"z": np.ones(60)}, "all 60 pairs have z=1; linked and unlinked pairs are needed"),
        ({"z": np.arange(60)}, "pair 2: z=2: must be 1 for a link or 0 for none"),
        ({"z": np.full(60, np.nan)}, "pair 0: .* is not made of finite numbers"),
        ({"pairs": np.full((60, 2), [3, 24])}, "pair 0: user 24: must be a row number from 0 to 23"),
        ({"pairs": np.full((60, 2), [-1, 2])}, "pair 0: user -1: must be a row number"),
        ({"pairs": np.full((60, 2), [0.5, 2])}, "pair 0: user 0.5: must be a row number"),
        ({"pairs": np.full((60, 2), 4)}, "pair 0: user 4 is paired with himself"),
        ({"kernels": np.ones((2, 4, 3))}, r"kernels have shape \(2, 4, 3\); at fit they must be \(n_kernels, n, n\)"),
        ({"kernels": np.arange(48.0).reshape(3, 4, 4)}, "kernel 0 is not symmetric"),
        ({"kernels": np.full((1, 24, 24), np.nan)}, "kernel 0 holds nan"),
        ({"target": np.ones((3, 3))}, r"target has shape \(3, 3\); it must be \(24, 24\) with finite entries"),
        ({"C": 0.0}, "C=0.0: .*greater than 0"),
        ({"pair_kernel": "product"}, "pair_kernel='product'"),
        ({"n_import": 0}, "n_import=0"),
        ({"normalize": "none"}, "precomputed kernel 1 is not positive semi-definite"),
        ({"grams": "store"}, "needs gram_store"),
    ],
)
def test_bad_input_is_named(change, told):
    raw, pairs, z = problem()
    given = {"kernels": raw, "pairs": pairs, "z": z, "target": None}
    machine = SocialStrengthRanker().set_params(**{key: value for key, value in change.items() if key not in given})
    given |= {key: value for key, value in change.items() if key in given}
    with pytest.raises(ValueError, match=told):
        machine.fit(**given)


def test_users_without_items_and_views_without_a_clue_are_named():
    raw, pairs, z = problem()
    empty = raw.copy()
    empty[:, 7] = empty[:, :, 7] = 0.0
    with pytest.raises(DataError, match="user 7 has no items: the row is zero in every view"):
        SocialStrengthRanker().fit(empty, pairs, z)
    # A user with something in one view is no such user.
    empty[1] = raw[1]
    SocialStrengthRanker().fit(empty, pairs, z)
    circle = np.resize(np.arange(3), 24)
    apart = (circle[:, None] != circle).astype(float)
    pairs = np.array([(u, v) for u in range(24) for v in range(24) if u != v])
    z = (circle[pairs[:, 0]] == circle[pairs[:, 1]]).astype(int)
    with pytest.raises(ValueError, match=r"the largest alignment is .* \(view 0\) .* set weights='uniform'"):
        SocialStrengthRanker(alignment="off-diagonal").fit(apart[None], pairs, z)
    assert SocialStrengthRanker(alignment="off-diagonal", weights="uniform").fit(apart[None], pairs, z).alignment_ < 0


def test_bad_questions_are_refused():
    raw, pairs, z = problem()
    machine = SocialStrengthRanker().fit(raw, pairs, z)
    for call, told in (
        (lambda: machine.decision_function([[0, 24]]), "must be row numbers from 0 to 23"),
        (lambda: machine.decision_function([0, 1]), r"pairs have shape \(2,\)"),
        (lambda: machine.recommend(24), "must be row numbers from 0 to 23"),
        (lambda: machine.recommend(0, 0), "k=0: must be a whole number of at least 1"),
        (lambda: machine.recommend_groups(0, np.ones((3, 3))), r"membership has shape \(3, 3\); it must be \(24, n_groups\)"),
    ):
        with pytest.raises(ValueError, match=told):
            call()


# -- the planted community ---------------------------------------------------------------------------------------------------------


def planted(seed):
    """Mean share of contacts among the first ten, of held-out users: learnt, direct, uniform, and every view alone; and the weights."""
    graph = social_graph(seed=seed)
    known, held = np.flatnonzero(~graph.held_out), np.flatnonzero(graph.held_out)
    pairs, z = training_pairs(graph.contacts, graph.comments, graph.views, users=known)
    target = graph.contacts & ~graph.held_out & ~graph.held_out[:, None]
    machine = SocialStrengthRanker(0.01).fit(graph.views, pairs, z, target)
    views = [normalise_row_maximum(K) for K in graph.views]
    scores = {"learnt": user_scores(machine.model_), "direct": direct_scores(machine.model_), "uniform": lambda u: np.sum(views, axis=0)[u]}
    scores |= {name: (lambda u, K=K: K[u]) for name, K in zip(VIEWS, views, strict=True)}
    return {name: hit_rates(score, graph.contacts, held)[-1] for name, score in scores.items()}, machine.kernel_weights_


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_alignment_beats_equal_weights_and_every_view(seed):
    shares, weights = planted(seed)
    assert shares["direct"] > shares["uniform"] and shares["learnt"] > shares["uniform"]
    assert all(shares["direct"] > shares[name] and shares["learnt"] > shares[name] for name in VIEWS)
    by_name = dict(zip(VIEWS, weights.tolist(), strict=True))
    assert by_name["visual"] <= 0.05 and by_name["fave"] <= 0.05
    assert min(by_name["comment"], by_name["text"]) > 0.4
