"""Tokens as they are generated: the scores are those of a pass over the result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_gpt import N, TinyGPT
from torch import Tensor

import qipf
from qipf.scores import SCORERS
from qipf.tasks import log_probability, perplexity, summarise
from qipf.tasks.generation import GenerationWatch

SCORES = [name for name, kind in SCORERS.items() if kind.reads_summary]


def generate(model: TinyGPT, ids: Tensor, steps: int, processors: list[Any], seed: int = 0) -> Tensor:
    """What `generate` of Hugging Face does when it samples."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        with torch.no_grad():
            scores = model(ids).logits[:, -1]
        for processor in processors:
            scores = processor(ids, scores)
        ids = torch.cat([ids, torch.multinomial(scores.softmax(1), 1, generator=generator)], 1)
    return ids


def test_generated_tokens_have_the_scores_of_a_pass_over_the_result(model, ids) -> None:
    watch = GenerationWatch()
    prompt = ids[:, :4]
    result = generate(model, prompt, 5, [watch])
    torch.testing.assert_close(result, generate(model, prompt, 5, []))  # it changes nothing
    made, again = watch.tokens(result), qipf.collect(model, (result, result), progress=False)
    rows = {key: row for row, key in enumerate(zip(again.groups.tolist(), again.positions.tolist(), strict=True))}
    same = [rows[key] for key in zip(made.groups.tolist(), made.positions.tolist(), strict=True)]
    assert len(made) == 5 * N
    for name in SCORES:
        torch.testing.assert_close(SCORERS[name]()(made), SCORERS[name]()(again)[same], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(made.summary.log_label, again.summary.log_label[same], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(made.labels, again.labels[same])

    end = int(result[0, 5])  # the second generated token of the first sequence
    short = watch.tokens(result, end=end)
    for n in range(N):
        generated = result[n, 4:].tolist()
        expected = generated.index(end) + 1 if end in generated else 5
        assert int((short.groups == n).sum()) == expected


def test_a_watch_refuses_beams_and_a_second_use(model, ids) -> None:
    watch = GenerationWatch()
    with pytest.raises(RuntimeError, match="nothing"):
        watch.tokens(ids)
    generate(model, ids[:, :4], 2, [watch])
    with pytest.raises(ValueError, match="GenerationWatch"):
        generate(model, ids[:, :4], 2, [watch])
    with pytest.raises(ValueError, match="sequences"):
        watch.tokens(ids)


def test_scores_are_those_of_lm_polygraph(model, ids) -> None:
    """Its formulas, on the full logits of greedy text: -p, the entropy, -mean log p (called perplexity), -sum log p."""
    watch = GenerationWatch()
    text, logs = ids[:, :2], []
    with torch.no_grad():
        for _ in range(5):
            step = model(text).logits[:, -1]
            logs.append(step.double().log_softmax(1))
            text = torch.cat([text, watch(text, step).argmax(1)[:, None]], 1)
    tokens = watch.tokens(text)
    every = torch.stack(logs, 1)  # (N, steps, V)
    chosen = every.amax(2)
    order = torch.argsort(tokens.groups * 100 + tokens.positions)
    mine = {name: SCORERS[name]()(tokens)[order].double().view(N, 5) for name in ("softmax-response", "entropy")}
    torch.testing.assert_close(mine["softmax-response"] - 1, -chosen.exp(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(mine["entropy"], -(every.exp() * every).sum(2), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        summarise(qipf.Entropy()(tokens), tokens.groups), -(every.exp() * every).sum(2).mean(1), rtol=1e-5
    )
    np.testing.assert_allclose(np.log(perplexity(tokens)), -chosen.mean(1), rtol=1e-5)
    np.testing.assert_allclose(log_probability(tokens, normalised=False), chosen.sum(1), rtol=1e-5)
