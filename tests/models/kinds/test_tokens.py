"""Tokens: the numbers of every token equal those of the full logits, and masks and labels pick the right ones."""

from __future__ import annotations

import math
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import qipf
from qipf.models.kinds import vocabulary
from qipf.models.kinds.generation import GenerationWatch
from qipf.models.kinds.tokens import SCORES, collect_tokens

V, T, N = 37, 9, 5
no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class TinyGPT(nn.Module):
    """A causal transformer that returns what Hugging Face models return."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
        self.lm_head = nn.Linear(width, V)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        causal = nn.Transformer.generate_square_subsequent_mask(input_ids.shape[1])
        hidden = self.block(self.embedding(input_ids), src_mask=causal)
        return SimpleNamespace(logits=4 * self.lm_head(hidden))


@pytest.fixture(scope="module")
def model() -> TinyGPT:
    torch.manual_seed(0)
    return TinyGPT().eval()


@pytest.fixture(scope="module")
def ids() -> Tensor:
    return torch.randint(V, (N, T), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def logits(model: TinyGPT, ids: Tensor) -> Tensor:
    with torch.no_grad():
        return model(ids).logits


def scorers() -> dict[str, Any]:
    return {
        "softmax-response": qipf.SoftmaxResponse(),
        "entropy": qipf.Entropy(),
        "margin": qipf.OneMinusMargin(),
        "max-logit": qipf.MaxLogit(),
        "energy": qipf.Energy(),
        "logit-margin": qipf.scores.LogitMargin(),
    }


@pytest.mark.parametrize("block", [V - 1, 3 * V, 2**22])
def test_scores_equal_those_of_the_full_logits(model, ids, logits, block, monkeypatch) -> None:
    monkeypatch.setattr(vocabulary, "BLOCK", block)
    tokens = collect_tokens(model, (ids, ids), batch_size=2, progress=False)
    flat = logits[:, :-1].reshape(-1, V)
    assert set(scorers()) == set(SCORES)
    for name, scorer in scorers().items():
        torch.testing.assert_close(tokens.score(name), scorer(flat.double()).float(), rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(tokens.predicted, flat.argmax(1))
    torch.testing.assert_close(tokens.labels, ids[:, 1:].flatten())
    expected = -nn.functional.cross_entropy(flat, ids[:, 1:].flatten(), reduction="none")
    torch.testing.assert_close(tokens.log_label, expected)
    torch.testing.assert_close(tokens.correct, flat.argmax(1) == ids[:, 1:].flatten())


@pytest.mark.parametrize("width", [2, 37, 400, 1013])
@pytest.mark.parametrize("count", [2, 5])
def test_the_largest_logits_are_those_of_topk(width: int, count: int) -> None:
    logits = torch.randn(50, width, generator=torch.Generator().manual_seed(width))
    values, places = vocabulary.top_logits(logits, count)
    torch.testing.assert_close((values, places), tuple(logits.topk(min(count, width), dim=1)))


def reduced(logits: Tensor, rows: Tensor, device: str) -> vocabulary.Reduced:
    labels = rows % logits.shape[1]
    found = vocabulary.reduce_logits(logits.to(device), rows.to(device), labels.to(device), 2)
    return vocabulary.Reduced(*(value.cpu() for value in found if value is not None))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, no_gpu])])
def test_sure_predictions_and_masked_tokens_keep_their_precision(device: str) -> None:
    """The oracle works in double precision; -inf is what processors write for tokens that are forbidden."""
    logits = torch.randn(40, 500, generator=torch.Generator().manual_seed(0))
    logits[:20, 7] += torch.linspace(5, 60, 20)
    logits[:, 100:200] = -torch.inf
    before = logits.clone()
    found = reduced(logits, torch.arange(40), device)
    assert torch.equal(logits, before)
    behind = (logits.double() - logits.double().max(1, keepdim=True).values).sort(1, descending=True).values[:, 1:]
    rest = behind.exp().sum(1)
    entropy = rest.log1p() - (behind.exp() * behind.clamp(min=-1e4)).sum(1) / (1 + rest)
    torch.testing.assert_close(found.log_rest.double(), rest.log(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.entropy.double(), entropy, rtol=2e-5, atol=1e-12)


@no_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("share", [1.0, 0.2, 0.0])
@pytest.mark.parametrize("width", [3, 333, 10_001])
def test_the_kernel_of_a_gpu_gives_what_a_cpu_gives(dtype, share, width) -> None:
    assert vocabulary._kernel() is not None
    generator = torch.Generator().manual_seed(1)
    logits = (4 * torch.randn(60, width, generator=generator)).to(dtype)
    logits[3, 2:] = -torch.inf
    logits[4, 1:] = -torch.inf  # one token is allowed
    rows = torch.nonzero(torch.rand(60, generator=generator) < share)[:, 0]
    one, other = (reduced(logits, rows, device) for device in ("cpu", "cuda"))
    ties = one.top[:, 0] == one.top[:, 1]  # either of two equal logits may be the prediction
    assert torch.equal(one.predicted[~ties], other.predicted[~ties])
    for name in ("top", "log_rest", "log_sum", "entropy", "log_label"):
        wanted, got = getattr(one, name), getattr(other, name)
        torch.testing.assert_close(got, wanted, rtol=3e-5, atol=3e-5, msg=lambda text, name=name: f"{name}: {text}")


@no_gpu
@pytest.mark.gpu
def test_the_kernel_keeps_to_the_bounds_of_wide_steps_and_says_nan() -> None:
    """Rows that lie apart in memory, and logits that are not numbers."""
    logits = torch.randn(6, 2, 500, generator=torch.Generator().manual_seed(2)).to("cuda")[:, 1]
    logits[2, 17] = torch.nan
    logits[3] = torch.nan
    logits[4] = -torch.inf
    found = vocabulary.reduce_logits(logits, torch.arange(6, device="cuda"), None, 2)
    assert found.log_label is None
    assert found.entropy.isnan().tolist() == [False, False, True, True, False, False]
    assert int(found.predicted.max()) < 500
    assert found.entropy[4].item() == pytest.approx(math.log(500))  # nothing is allowed, so nothing is more likely
    wanted = torch.distributions.Categorical(logits=logits[:2].double()).entropy().float()
    torch.testing.assert_close(found.entropy[:2], wanted, rtol=1e-5, atol=1e-5)


def test_masks_and_ignored_labels_are_left_out(model, ids) -> None:
    mask = torch.ones_like(ids)
    mask[0, 6:] = 0  # padded on the right
    mask[1, :3] = 0  # padded on the left
    labels = ids.clone()
    labels[2, 4] = -100
    tokens = collect_tokens(model, {"input_ids": ids, "attention_mask": mask, "labels": labels}, progress=False)
    found = set(zip(tokens.sequence.tolist(), tokens.position.tolist(), strict=True))
    expected = {(n, t) for n in range(N) for t in range(1, T)}
    expected -= {(0, t) for t in range(6, T)} | {(1, t) for t in range(4)} | {(2, 4)}
    assert found == expected
    for n, t, label in zip(tokens.sequence, tokens.position, tokens.labels, strict=True):
        assert ids[n, t] == label


def test_without_shift_a_label_belongs_to_its_own_place(model, ids, logits) -> None:
    tokens = collect_tokens(model, (ids, ids), shift=False, progress=False)
    assert len(tokens) == N * T
    expected = logits.log_softmax(-1).gather(2, ids[..., None])[..., 0].flatten()
    torch.testing.assert_close(tokens.log_label, expected)


def test_without_labels_every_place_predicts_the_next(model, ids) -> None:
    tokens = collect_tokens(model, ids, progress=False)
    assert len(tokens) == N * T
    assert tokens.position.max() == T
    with pytest.raises(ValueError, match="no labels"):
        tokens.perplexity()


def test_sequences_are_summarised(model, ids, logits) -> None:
    tokens = collect_tokens(model, (ids, ids), batch_size=2, progress=False)
    log_p = logits.log_softmax(-1)[:, :-1].gather(2, ids[:, 1:, None])[..., 0]
    np.testing.assert_allclose(tokens.log_probability(), log_p.mean(1), rtol=1e-5)
    np.testing.assert_allclose(tokens.log_probability(normalised=False), log_p.sum(1), rtol=1e-5)
    np.testing.assert_allclose(tokens.perplexity(), torch.exp(-log_p.mean(1)), rtol=1e-5)
    entropy = torch.distributions.Categorical(logits=logits[:, :-1]).entropy()
    np.testing.assert_allclose(tokens.per_sequence("entropy", "max"), entropy.max(1).values, rtol=1e-5)


@pytest.mark.parametrize("features", [True, "block"])
def test_features_are_the_hidden_state_of_the_same_token(model, ids, features) -> None:
    tokens = collect_tokens(model, (ids, ids), features=features, batch_size=2, progress=False)
    logits = 4 * model.lm_head(tokens.features)
    torch.testing.assert_close(logits.max(1).values, tokens.top[:, 0])
    question = tokens.question()
    assert question.features.shape == (len(tokens), 16 + 5)
    chance = nn.functional.softmax(logits, 1).max(1).values
    torch.testing.assert_close(question.logits[:, 0].sigmoid(), chance)
    torch.testing.assert_close(question.labels == 1, tokens.correct)
    assert not model.lm_head._forward_hooks


def test_half_precision_logits_are_reduced_in_single(model, ids) -> None:
    half = TinyGPT().bfloat16()
    assert collect_tokens(half, (ids, ids), progress=False).entropy.dtype == torch.float32


def test_what_does_not_fit_is_named(model, ids) -> None:
    with pytest.raises(ValueError, match=r"expected logits \(N, T, V\)"):
        collect_tokens(nn.Linear(T, 3), ids.float(), progress=False)
    with pytest.raises(ValueError, match=r"expected whole numbers of shape \(5, 9\).*got int64 of shape \(5,\)"):
        collect_tokens(model, (ids, ids[:, 0]), progress=False)
    labels = ids.clone()
    labels[4, 6] = 137
    with pytest.raises(ValueError, match=r"from 0 to 36,.* got 137 at place 6 of sequence 4 .* first of 1 "):
        collect_tokens(model, (ids, labels), batch_size=2, progress=False)
    with pytest.raises(TypeError, match="ignore: expected a whole number"):
        collect_tokens(model, (ids, ids), ignore=[-100, 0], progress=False)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="shift: expected True or False"):
        collect_tokens(model, (ids, ids), shift="no", progress=False)  # pyright: ignore[reportArgumentType]
    for top, kind in ((1, ValueError), (2.5, TypeError)):
        with pytest.raises(kind, match="top: expected a whole number"):
            collect_tokens(model, ids, top=top, progress=False)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="at least one sequence"):
        collect_tokens(model, [], progress=False)


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
    made, again = watch.tokens(result), collect_tokens(model, (result, result), progress=False)
    rows = {key: row for row, key in enumerate(zip(again.sequence.tolist(), again.position.tolist(), strict=True))}
    same = [rows[key] for key in zip(made.sequence.tolist(), made.position.tolist(), strict=True)]
    assert len(made) == 5 * N
    for name in SCORES:
        torch.testing.assert_close(made.score(name), again.score(name)[same], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(made.log_label, again.log_label[same], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(made.labels, again.labels[same])

    end = int(result[0, 5])  # the second generated token of the first sequence
    short = watch.tokens(result, end=end)
    for n in range(N):
        generated = result[n, 4:].tolist()
        expected = generated.index(end) + 1 if end in generated else 5
        assert int((short.sequence == n).sum()) == expected


def test_a_watch_refuses_beams_and_a_second_use(model, ids) -> None:
    watch = GenerationWatch()
    with pytest.raises(RuntimeError, match="nothing was generated"):
        watch.tokens(ids)
    generate(model, ids[:, :4], 2, [watch])
    with pytest.raises(ValueError, match="new GenerationWatch"):
        generate(model, ids[:, :4], 2, [watch])
    with pytest.raises(ValueError, match="sequences: expected shape"):
        watch.tokens(ids)


class Alone(nn.Module):
    """Counts how many of its results exist while it makes the next one."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.made, self.most = inner, [], 0

    def forward(self, input_ids: Tensor) -> Tensor:
        self.most = max(self.most, sum(one() is not None for one in self.made))
        result = self.inner(input_ids).logits
        self.made.append(weakref.ref(result))
        return result


@pytest.mark.parametrize("features", [True, False])
def test_the_logits_of_two_batches_never_exist_at_once(model, ids, features) -> None:
    counting = Alone(model)
    collect_tokens(counting, (ids, ids), features=features, batch_size=1, progress=False)
    assert len(counting.made) == N
    assert counting.most == 0


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
    order = torch.argsort(tokens.sequence * 100 + tokens.position)
    mine = {name: tokens.score(name)[order].double().view(N, 5) for name in ("softmax-response", "entropy")}
    torch.testing.assert_close(mine["softmax-response"] - 1, -chosen.exp(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(mine["entropy"], -(every.exp() * every).sum(2), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tokens.per_sequence("entropy"), -(every.exp() * every).sum(2).mean(1), rtol=1e-5)
    np.testing.assert_allclose(np.log(tokens.perplexity()), -chosen.mean(1), rtol=1e-5)
    np.testing.assert_allclose(tokens.log_probability(normalised=False), chosen.sum(1), rtol=1e-5)
