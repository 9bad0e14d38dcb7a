"""The metrics of a ranking, and scores of predictions some of which are wrong."""

import numpy as np

from qipf import metrics

RANKING = {
    "roc_auc": metrics.roc_auc,
    "pr_auc": metrics.pr_auc,
    "pr_auc_trapezoid": metrics.pr_auc_trapezoid,
    "fpr_at_95_tpr": metrics.fpr_at_tpr,
    "aurc": metrics.aurc,
    "excess_aurc": metrics.excess_aurc,
    "augrc": metrics.augrc,
    "spearman": metrics.spearman,
}


def planted(n=500, seed=0, decimals=None):
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    chance = 1 / (1 + np.exp(1 - u))
    correct = rng.random(n) > chance
    return (u, correct, chance) if decimals is None else (np.round(u, decimals), correct, np.round(chance, decimals))
