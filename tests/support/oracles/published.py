"""Objectives of fitted models from what they publish, in plain NumPy, each as the method's page writes it down."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from gramplane.kernels.grams.spec import KernelSpec
from tests.support.oracles import embedding, gram, latent_tasks, npkl, ranking, shared_subspace, social, triclass, umkl

# -- losses and kernels ------------------------------------------------------------------------------------------------------------


def losses(name, y, f, epsilon=0.1):
    """Loss of every row; widths are in standard deviations of the target, whose unit the loss has."""
    rest, s = np.abs(y - f), np.std(y) if name == "epsilon_insensitive" else 1.0
    return {
        "half squared": lambda: 0.5 * rest**2,
        "squared": lambda: rest**2,
        "logistic": lambda: np.logaddexp(0.0, -y * f),
        "hinge": lambda: np.maximum(0.0, 1.0 - y * f),
        "squared_hinge": lambda: np.maximum(0.0, 1.0 - y * f) ** 2,
        "half squared_hinge": lambda: 0.5 * np.maximum(0.0, 1.0 - y * f) ** 2,
        "epsilon_insensitive": lambda: s * np.maximum(0.0, rest - epsilon * s),
    }[name]()


def as_kernels_read(X):
    """Constant columns are zeros to kernels."""
    return np.where(np.ptp(X, axis=0) == 0, 0.0, X)


def grams(kernels, X):
    """Matrices of kernels written as texts, their normalisation among them; what is zero stays zero."""
    found = []
    for text in kernels:
        spec = KernelSpec.parse(text)
        K = gram.gram(spec, as_kernels_read(X))
        found.append(gram.normalized(spec, K) if K.any() else K)
    return np.stack(found)


def signs(y):
    """The greater of two labels as 1, the other as -1."""
    return np.where(y == np.unique(y)[-1], 1.0, -1.0)


def coefficients(model, n):
    """Signed coefficients of all rows, ``(n_machines, n)``."""
    out = np.zeros((len(np.atleast_2d(model.dual_coef_)), n))
    out[:, model.support_vectors_] = model.dual_coef_
    return out


# -- linear machines ---------------------------------------------------------------------------------------------------------------


def groups_value(coef, groups, lam, r, penalty="gl"):
    """``lam sum_g (sqrt(d_g) ||w_g|| + r ||w_g||_1)`` of one machine, or ``lam sum_g d_g max |w_g|``."""
    parts = [coef[groups == g] for g in np.unique(groups)]
    if penalty == "linf":
        return lam * sum(part.size * np.abs(part).max() for part in parts)
    return lam * sum(np.sqrt(part.size) * np.linalg.norm(part) + r * np.abs(part).sum() for part in parts)


def group_lasso(model, X, y, groups, loss, r=0.0):
    """Mean losses and penalties, summed over machines."""
    targets = [y] if loss == "half squared" else [np.where(y == label, 1.0, -1.0) for label in model.classes_]
    targets = targets[1:] if len(targets) == 2 else targets
    total = 0.0
    for target, coef, intercept in zip(targets, model.coef_, model.intercept_, strict=True):
        total += losses(loss, target, X @ coef + intercept).mean() + groups_value(coef, groups, model.lam, r, model.penalty)
    return total


def selector(model, X, y, task, loss):
    """(4.3): mean losses of the tasks, and the penalty on rows of W."""
    target = y if loss == "half squared" else signs(y)
    codes = np.searchsorted(model.tasks_, task)
    told = losses(loss, target, (X * model.coef_[codes]).sum(axis=1) + model.intercept_[codes])
    lam, W = model.lam if model.refit is None else model.refit, model.coef_
    row, entry = {"imtfs": (0.0, 1.0), "amtfs": (1.0, 0.0), "mtfts": (1.0, model.r)}[model.penalty]
    penalty = row * np.linalg.norm(W, axis=0).sum() + entry * np.abs(W).sum()
    return sum(told[codes == q].mean() for q in range(len(model.tasks_))) + lam * penalty


def target_losses(name, y, f, epsilon, delta):
    """Loss of every row with a real target; the widths are in its standard deviations."""
    rest, s = np.abs(y - f), y.std()
    if name == "squared_epsilon_insensitive":
        return 0.5 * np.maximum(0.0, rest - epsilon * s) ** 2
    bent = 0.5 * rest**2
    return np.where(rest <= delta * s, bent, delta * s * (rest - 0.5 * delta * s)) if name == "huber" else bent


def fgm(model, X, y, covariates=None):
    """F_T of cuts that share no feature: half the squared sum of their norms, and C times the losses (half of the squared hinge's)."""
    coef, f = model.coef_[0], X @ model.coef_[0] + model.intercept_[0]
    f = f if covariates is None else f + covariates @ model.covariate_coef_[0]
    norms = [np.linalg.norm(coef[cut]) for cut in model.cuts_]
    if hasattr(model, "classes_"):
        name = "squared_hinge" if model.loss == "auto" else model.loss
        told = losses(name, signs(y), f).sum() * (0.5 if name == "squared_hinge" else 1.0)
    else:
        told = target_losses(model.loss, y, f, model.epsilon, model.delta).sum()
    return 0.5 * sum(norms) ** 2 + model.C * told


# -- machines on kernels -----------------------------------------------------------------------------------------------------------


def mkl(model, K, targets, loss):
    """The machines at the weights published, summed."""
    total, weights = 0.0, np.atleast_2d(model.kernel_weights_)
    parts = zip(targets, weights, coefficients(model, K.shape[1]), model.intercept_, strict=True)
    for target, theta, beta, intercept in parts:
        combined = np.tensordot(theta, K, 1)
        total += 0.5 * beta @ combined @ beta + model.C * losses(loss, target, combined @ beta + intercept).sum()
    return total


def two_layer(model, K, target, loss="hinge"):
    """The machine on the exponential of the weighted sum, and the penalty on the weights, in the square of the target's unit."""
    K2, (beta,) = np.exp(np.tensordot(model.kernel_weights_, K, 1)), coefficients(model, len(target))
    told, square = losses(loss, target, K2 @ beta + model.intercept_[0]).sum(), 1.0 if loss == "hinge" else np.var(target)
    return 0.5 * beta @ K2 @ beta + model.C * told + square * model.penalty_ * model.kernel_weights_.sum()


def forms_of_tasks(model, K, codes):
    """``beta_s' K_j beta_t`` of all pairs of tasks, and the coefficients task by task."""
    (beta,) = coefficients(model, len(codes))
    apart = beta[:, None] * (codes[:, None] == np.arange(len(model.tasks_)))
    return np.einsum("ns,jnm,mt->jst", apart, K, apart), apart


def multitask_mkl(model, K, target, codes, loss):
    """Half the squared norm of the functions over tasks (p) and kernels (q), and the losses."""
    forms, apart = forms_of_tasks(model, K, codes)
    weights = model.task_kernel_weights_
    norms = weights * np.sqrt(np.maximum(np.einsum("jtt->jt", forms), 0.0))
    size = np.sum(np.sum(norms**model.p, axis=1) ** (model.q / model.p)) ** (2.0 / model.q)
    same = codes[:, None] == codes[None, :]
    values = sum((weights[j, codes][:, None] * K[j] * same) @ apart.sum(axis=1) for j in range(len(K)))
    return 0.5 * size + model.C * losses(loss, target, values + model.intercept_[codes]).sum()


def subspace(model, features, target, codes, loss):
    """Half the squared norm q over kernels of the nuclear norms of the parts of all tasks, and the losses."""
    (beta,) = coefficients(model, len(target))
    apart = beta[:, None] * (codes[:, None] == np.arange(len(model.tasks_)))
    parts = [F.T @ apart @ D for F, D in zip(features, model.task_weights_, strict=True)]
    return shared_subspace.primal(parts, model.intercept_, features, target, codes, model.q, model.C, loss)


def latent(model, K, target, codes, loss):
    """Half the squared gauge over all groups of tasks, and the losses."""
    forms, apart = forms_of_tasks(model, K, codes)
    n_tasks, same = len(model.tasks_), codes[:, None] == codes[None, :]
    every, own = latent_tasks.all_groups(n_tasks), np.array([[t in group.tasks for t in model.tasks_] for group in model.groups_])
    theta, values = np.zeros((len(own), len(K))), np.zeros(len(target))
    for place, w in enumerate(own):
        for j, weight in enumerate(model.group_kernel_weights_[place]):
            square = forms[j][w][:, w].sum() / model.mu + np.trace(forms[j][w][:, w])
            theta[place, j] = weight * np.sqrt(max(square, 0.0))
            inside = np.outer(w[codes], w[codes])
            values += weight * (inside * K[j] * (1.0 / model.mu + same)) @ apart.sum(axis=1)
    norms = np.sum(theta**model.p, axis=1) ** (1.0 / model.p)
    d, gauge = latent_tasks.penalties(every, model.a, model.inverted_), 0.0
    for v, cost in zip(every, d, strict=True):
        below = np.array([latent_tasks.above(v[None], w, model.inverted_)[0] for w in own])
        gauge += cost * np.sum(norms[below] ** model.q) ** (1.0 / model.q)
    return 0.5 * gauge**2 + model.C * losses(loss, target, values + model.intercept_[codes]).sum()


def gauge_of_sets(norms, penalty, rho):
    """``sum_v d_v (sum_{w >= v} ||f_w||^rho)^(1 / rho)`` over all subsets v of sets w, the empty one among them."""
    nodes = {frozenset(v) for w in norms for size in range(len(w) + 1) for v in combinations(sorted(w), size)}
    return sum(penalty ** len(v) * sum(norm**rho for w, norm in norms.items() if v <= w) ** (1.0 / rho) for v in nodes)


def subsets_of_features(model, X, gamma, target, loss):
    """A machine on products of Gaussians of single features, over subsets: half the squared gauge, and the losses."""
    (beta,) = coefficients(model, len(target))
    single = [np.exp(-gamma * (column[:, None] - column[None]) ** 2) for column in as_kernels_read(X).T]
    norms, values = {}, np.zeros(len(target)) + model.intercept_[0]
    for node, weight in zip(model.nodes_, model.kernel_weights_, strict=True):
        chosen = frozenset(np.flatnonzero(node).tolist())
        K = np.prod([single[j] for j in chosen], axis=0) if chosen else np.ones((len(X), len(X)))
        norms[chosen] = weight * np.sqrt(max(beta @ K @ beta, 0.0))
        values += weight * (K @ beta)
    return 0.5 * gauge_of_sets(norms, model.a, model.rho) ** 2 + model.C * losses(loss, target, values).sum()


def rules(model, X, target, loss="hinge"):
    """Conjunctions with their weights, neither moved, dropped nor fitted again."""
    norms, values = {}, np.full(len(target), model.intercept_[0])
    for rule in model.rules_:
        holds = np.ones(len(X), bool)
        for part in rule["conditions"]:
            column = X[:, part["column"]]
            holds &= column <= part["cut"] if part["sign"] == "<=" else column > part["cut"]
        weight = rule["weight"] * (1 if loss != "hinge" or rule["vote"] == model.classes_[1] else -1)
        values += weight * holds
        norms[frozenset((part["column"], part["sign"], part["cut"]) for part in rule["conditions"])] = abs(weight)
    return 0.5 * gauge_of_sets(norms, model.a, model.rho) ** 2 + model.C * losses(loss, target, values).sum()


def tri_class(model, K, y, n_free):
    """J in its own units, lambda = 1 / C."""
    (beta,), n = np.zeros((1, len(K))), len(y)
    beta[model.support_] = model.dual_coef_[0]
    labels, free = np.append(y, np.zeros(n_free)), np.arange(n + n_free) >= n
    r = np.where(free, model.C_unlabelled, np.where(labels == 0, model.C_irrelevant, model.C)) / model.C
    return triclass.objective(1 / model.C, beta @ K @ beta, K @ beta + model.intercept_[0], labels, free, r, model.eps)


# -- matrices that are learned -----------------------------------------------------------------------------------------------------


def learned(model):
    """The kernel matrix of eigenvectors and eigenvalues."""
    return (model.eigenvectors_ * model.eigenvalues_) @ model.eigenvectors_.T


def pairs_kernel(model, X, triples):
    """The graph's energy and the losses of pairs."""
    n = len(X)
    ids = npkl.neighbours(X, model.n_neighbors)
    links = np.zeros((n, n))
    links[np.repeat(np.arange(n), ids.shape[1]), ids.ravel()] = 1
    links = np.minimum(links, links.T) if model.graph == "mutual" else np.maximum(links, links.T)
    T = np.zeros((n, n))
    for i, j, sign in triples:
        T[i, j] = T[j, i] = sign
    return npkl.objective(learned(model), npkl.laplacian(links), T, model.loss, model.C, model.p, model.G)


def image_ranking(model, X, tags):
    """Alignment with the tags, and the squared excess of distances of neighbours."""
    pairs, d = ranking.mutual_pairs(X, model.n_neighbors, union=model.graph == "union")
    n = len(X)
    d2 = d[pairs[:, 0], pairs[:, 1]] / (d.sum() / (n * (n - 1)))
    return ranking.objective(model.kernel_block(), ranking.target(ranking.tf_idf(tags)), pairs, d2, model.C)


def edges(model, X):
    """Matrices of the edges, and their squared distances in units of their mean."""
    i, j = model.edges_.T
    return embedding.edge_matrices(len(X), i, j), np.sum((X[i] - X[j]) ** 2, axis=1) / model.unit_


def coloured(model, X, y):
    """Labels against distances of neighbours."""
    T, goal = edges(model, X)
    H, Y = embedding.centring(len(X)), (y[:, None] == np.unique(y)).astype(float)
    return embedding.squares_objective(learned(model), H @ Y @ Y.T @ H, T, goal, model.C)


def volume(model, X):
    """Eigenvalues beside the map against those of the map, and distances of neighbours."""
    return embedding.volume_value(learned(model), *edges(model, X), model.C, model.n_components)


def structure(model, X):
    """Alignment with the graph, and the largest violation of all triples in its own units."""
    W, H = np.zeros((len(X), len(X))), embedding.centring(len(X))
    i, j = model.edges_.T
    W[i, j] = W[j, i] = 1.0
    M, K = H @ W @ H, learned(model)
    best = np.sqrt(model.cap_ * np.sum(np.maximum(np.linalg.eigvalsh(M), 0.0) ** 2))
    assert model.C == "auto"
    assert np.isclose(model.C_, best * len(X) / (2.0 * np.sqrt(2.0 * model.cap_)), rtol=1e-9)
    worst = max(0.0, embedding.violations(K, embedding.all_triples(W > 0)).max())
    return -np.sum(M * K) + model.C_ * worst


def unsupervised(model, X, K):
    """How well rows are rebuilt from their bases."""
    return umkl.objective(X, np.tensordot(model.kernel_weights_, K, 1), model.bases_, model.gamma1, model.gamma2)


def strength(model, K, pairs, z):
    """Logistic regression of links on a kernel of pairs."""
    K = np.tensordot(model.model_.theta, K, 1)
    return social.objective(social.pair_matrix(K, pairs, pairs, model.pair_kernel), z, model.C, model.coef_)
