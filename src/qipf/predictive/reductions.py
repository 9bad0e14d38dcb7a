"""What can be read off sampled class probabilities of shape (n, N, C): pure functions of any library's arrays."""

from __future__ import annotations

from qipf.arrays import Array, namespace


def mean(probabilities: Array) -> Array:
    """The mean over the passes, shape (N, C): the predictive distribution."""
    _check(probabilities)
    return namespace(probabilities).mean(probabilities, axis=0)


def std_predicted(probabilities: Array, predicted: Array | None = None) -> Array:
    """Standard deviation over the passes of the predicted class's probability (the paper's score, appendix F).

    The deviation divides by n, not by n - 1, as the paper's programs do: sqrt(mean_k (p_k - mean p)^2).

    Args:
        probabilities: Sampled probabilities, shape (n, N, C).
        predicted: The class to look at, shape (N,), integer: the prediction of the base model, for instance.
            Without it, the class that the mean prefers.

    Returns:
        One number per input, shape (N,).
    """
    _check(probabilities)
    xp = namespace(probabilities)
    classes: Array = xp.argmax(mean(probabilities), axis=-1) if predicted is None else predicted
    if classes.shape != probabilities.shape[1:2]:
        raise ValueError(
            f"predicted: expected one class for each of the {probabilities.shape[1]} inputs, "
            f"got shape {tuple(classes.shape)}"
        )
    return xp.take_along_axis(xp.std(probabilities, axis=0), classes[:, None], axis=-1)[:, 0]


def entropy(probabilities: Array) -> Array:
    """Entropy of the mean, H[mean_k p_k] in nats, shape (N,): total uncertainty."""
    return entropy_of(mean(probabilities))


def mutual_information(probabilities: Array) -> Array:
    """H[mean_k p_k] - mean_k H[p_k] in nats, shape (N,): what the passes disagree about, never negative."""
    xp = namespace(probabilities)
    total = entropy(probabilities)
    expected = xp.mean(entropy_of(probabilities), axis=0)
    return xp.clip(total - expected, 0.0, None)


def entropy_of(probabilities: Array) -> Array:
    """-sum_c p_c log p_c over the last axis, with 0 log 0 = 0."""
    xp = namespace(probabilities)
    tiny = xp.finfo(probabilities.dtype).smallest_normal
    return -xp.sum(probabilities * xp.log(xp.clip(probabilities, tiny, None)), axis=-1)


def _check(probabilities: Array) -> None:
    if probabilities.ndim != 3 or 0 in probabilities.shape:
        raise ValueError(
            "probabilities: expected a non-empty array of shape (passes, inputs, classes), "
            f"got {tuple(probabilities.shape)}"
        )
