"""The recommended scorer: what it reads of a network, what it perturbs, and that it knows errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from qipf.deploy.wrapper import wrap
from qipf.models.collect import collect
from qipf.models.outputs import Outputs
from qipf.models.references import References
from qipf.scores import KNN, Entropy
from qipf.scores.old_default import default, perturbed, reference_outputs, spaces_of
from qipf.study import nets


@pytest.mark.parametrize(
    ("net", "spaces"),
    [
        ("lenet", ("dense2", "dense1")),
        ("vgg3", ("4", "3")),
        ("resnet18", ("features",)),
        ("small-cnn", ("7", "6")),
        ("mlp-moons", ("4", "2", "0")),
    ],
)
def test_the_spaces_of_our_networks(net: str, spaces: tuple[str, ...]) -> None:
    assert spaces_of(nets.build(net, seed=0)) == spaces


def test_a_transformer_is_read_at_its_features() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    model = nn.ModuleDict({"body": layer, "norm": nn.LayerNorm(8), "head": nn.Linear(8, 3)})
    assert spaces_of(model) == ("features",)
    assert spaces_of(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))) == ("features",)


def test_a_second_head_is_no_space() -> None:
    heads = nn.ModuleDict({"body": nn.Linear(8, 6), "act": nn.ReLU(), "age": nn.Linear(6, 4), "kind": nn.Linear(6, 3)})
    assert spaces_of(heads) == ("features",)
    del heads["age"]
    assert spaces_of(heads) == ("body",)


def compiled(net: nn.Module) -> nn.Module:
    return torch.compile(net, backend="eager")  # pyright: ignore[reportReturnType]


@pytest.mark.filterwarnings("ignore")  # torch's, about itself
@pytest.mark.parametrize("around", [nn.DataParallel, compiled, lambda net: compiled(nn.DataParallel(net))])
def test_compiled_and_parallel_models_are_looked_through(around) -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 3)).eval()
    x, y = torch.randn(60, 4, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3
    scorer = default(around(net), (x, y), progress=False)
    assert scorer.layers == ("0",)
    expected = scorer(collect(net, x, layers=scorer.layers, progress=False))
    both = wrap(around(net), scorer)
    assert set(both.model.state_dict()) == set(net.state_dict())
    with torch.no_grad():
        np.testing.assert_allclose(both(x)[1], expected, rtol=1e-5, atol=1e-6)
        knn = KNN(k=3).fit(outputs=collect(net, x, progress=False))
        np.testing.assert_allclose(wrap(around(net), knn)(x)[1], knn(collect(net, x, progress=False)), atol=1e-6)


def test_every_second_image_is_perturbed_and_every_kind_occurs() -> None:
    images = torch.rand(400, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    found = perturbed(images)
    changed = (found != images).flatten(1).any(1)
    assert not changed[::2].any()
    assert changed[1::2].float().mean() > 0.95  # the faintest blur or pixelation of 8x8 may change nothing
    assert found.min() >= 0
    assert found.max() <= 1
    assert torch.equal(found, perturbed(images))
    assert not torch.equal(found, perturbed(images, seed=1))


def test_images_in_other_units_are_perturbed_in_their_range() -> None:
    images = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    images[0, 0, 0, :2] = torch.tensor([0.0, 1.0])  # the range is known exactly
    scaled = perturbed(6 * images - 3)
    np.testing.assert_allclose((scaled.numpy() + 3) / 6, perturbed(images).numpy(), atol=1e-5)


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network that tells four noisy patterns apart."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(4, 1, 8, 8, generator=generator)
    labels = torch.randint(0, 4, (1200,), generator=generator)
    images = (patterns[labels] + 0.35 * torch.randn(1200, 1, 8, 8, generator=generator)).clamp(0, 1)
    from qipf.models.split import Split
    from qipf.training import train

    net = nets.build("small-cnn", classes=4, seed=0)
    train(net, Split(images[:800], labels[:800]), epochs=6, batch_size=50, learning_rate=5e-3, progress=False)
    return net, images, labels


def test_references_are_the_networks_outputs_on_those_images(trained) -> None:
    net, images, labels = trained
    found = reference_outputs(net, (images[:300], labels[:300]), progress=False)
    expected = collect(net, (perturbed(images[:300]), labels[:300]), layers=("7", "6"), progress=False)
    assert torch.equal(found.logits, expected.logits)
    assert torch.equal(found.layers["7"], expected.layers["7"])
    assert torch.equal(found.labels, labels[:300])
    clean = reference_outputs(net, (images[:300], labels[:300]), perturb=False, progress=False)
    assert torch.equal(clean.logits, collect(net, images[:300], progress=False).logits)
    fewer = reference_outputs(net, (images, labels), size=100, perturb=False, progress=False)
    assert len(fewer) == 100
    rows = [torch.cdist(row[None], collect(net, images, progress=False).logits).argmin() for row in fewer.logits]
    assert torch.equal(labels[torch.stack(rows)], fewer.labels)


def test_it_finds_errors_that_the_entropy_does_not(trained) -> None:
    net, images, labels = trained
    scorer = default(net, (images[:800], labels[:800]), progress=False)
    assert scorer.layers == ("7", "6")
    faded = 0.15 * images[800:] + 0.85 * (1 - images[800:].mean((1, 2, 3), keepdim=True))
    outputs = collect(net, (faded, labels[800:]), layers=scorer.layers, progress=False)
    wrong = ~outputs.correct.numpy()
    assert 20 < wrong.sum() < 380
    assert roc_auc_score(wrong, scorer(outputs)) > roc_auc_score(wrong, Entropy()(outputs)) - 0.02
    _, u = wrap(net, scorer)(faded)
    np.testing.assert_allclose(u.detach().numpy(), scorer(outputs).numpy(), rtol=1e-4, atol=1e-5)


def test_outputs_are_taken_as_they_are(trained) -> None:
    net, images, labels = trained
    collected = reference_outputs(net, (images[:400], labels[:400]), progress=False)
    again = collect(net, images[800:], layers=("7", "6"), progress=False)
    direct = default(net, (images[:400], labels[:400]), progress=False)
    assert torch.equal(default(net, collected)(again), direct(again))
    only_features = default(net, Outputs(collected.logits, collected.features, collected.labels))
    assert only_features.spaces == ("features",)
    assert only_features.fitted is not None
    assert only_features.fitted.facts["bandwidths"] == [[0.4]]


def test_vectors_are_not_perturbed() -> None:
    net = nets.build("mlp-moons", seed=0)
    x, y = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)), torch.arange(50) % 2
    found = reference_outputs(net, (x, y), progress=False)
    assert torch.equal(found.logits, collect(net, x, progress=False).logits)


def test_bad_data_is_refused(trained) -> None:
    net, images, labels = trained
    unlabelled = DataLoader(TensorDataset(images[:4]), batch_size=2)
    for data in (unlabelled, list(unlabelled), iter(unlabelled), images[:3], images[:3].numpy(), {"x": images[:3]}):
        with pytest.raises(ValueError, match=r"batch 0 has no labels.*a loader whose batches are \(inputs, labels\)"):
            default(net, data, progress=False)
    for data in (3, "data.npz", None):
        with pytest.raises(TypeError, match=r"data: expected a DataLoader, a dataset, a tensor, a pair"):
            default(net, data, progress=False)
    used_up = iter([(images[:4], labels[:4])])
    next(used_up)
    for data in ([], used_up, DataLoader(TensorDataset(images[:0], labels[:0]))):
        with pytest.raises(ValueError, match="at least one row"):
            default(net, data, progress=False)
    with pytest.raises(ValueError, match=r"batch 1: expected 4 labels.*got 3"):
        default(net, [(images[:4], labels[:4]), (images[:4], labels[:3])], size=5, progress=False)
    with pytest.raises(ValueError, match=r"scale to \[0, 1\] as floats first"):
        default(net, [((255 * images[:4]).to(torch.uint8), labels[:4])], progress=False)
    with pytest.raises(ValueError, match="size: expected at least 1, got 0"):
        default(net, (images[:4], labels[:4]), size=0, progress=False)
    for size in (2.5, "3", True):
        with pytest.raises(TypeError, match=f"size: expected a whole number of inputs, got {size!r}"):
            default(net, (images[:4], labels[:4]), size=size, progress=False)
    with pytest.raises(ValueError, match=r"labels of shape \(N,\)"):
        default(net, [images[:2], images[2:4]], progress=False)
    with pytest.raises(ValueError, match=r"scale to \[0, 1\] as floats first"):
        default(net, ((255 * images[:4]).to(torch.uint8), labels[:4]), progress=False)
    with pytest.raises(ValueError, match="3 inputs and 2 labels"):
        reference_outputs(net, (images[:3], labels[:2]), progress=False)


class Counted:
    """Batches that can be had once, and how many have been read."""

    def __init__(self, images: torch.Tensor, labels: torch.Tensor, rows: int) -> None:
        self.parts, self.read = zip(images.split(rows), labels.split(rows), strict=True), 0

    def __iter__(self):
        for part in self.parts:
            self.read += 1
            yield part


@pytest.mark.parametrize("rows", [1, 7, 64, 400])
def test_batches_get_what_the_whole_gets(trained, rows: int) -> None:
    net, images, labels = trained
    expected = reference_outputs(net, (images[:400], labels[:400]), progress=False)
    loader = DataLoader(TensorDataset(images[:400], labels[:400]), batch_size=rows)
    for data in (loader, list(loader), iter(loader), [{"x": x, "label": y} for x, y in loader],
                 [((x,), y) for x, y in loader]):  # fmt: skip
        found = reference_outputs(net, data, progress=False)
        torch.testing.assert_close(found.logits, expected.logits, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found.layers["6"], expected.layers["6"], rtol=1e-5, atol=1e-5)
        assert torch.equal(found.labels, labels[:400])


def test_a_loader_gives_the_scorer_of_its_first_inputs_and_is_read_no_further(trained) -> None:
    net, images, labels = trained
    direct = default(net, (images[:150], labels[:150]), progress=False)
    batches = Counted(images, labels, 40)
    streamed = default(net, batches, size=150, progress=False)
    assert batches.read == 4
    assert streamed.fitted.facts["references"] == 150
    outputs = collect(net, images[800:], layers=direct.layers, progress=False)
    np.testing.assert_allclose(streamed(outputs), direct(outputs), rtol=1e-3, atol=1e-4)
    fewer = default(net, iter([(images[:150], labels[:150])]), size=10_000, progress=False)
    assert torch.equal(fewer(outputs), direct(outputs))


def test_data_sets_are_sampled_as_arrays_are(trained) -> None:
    net, images, labels = trained
    expected = reference_outputs(net, (images, labels), size=90, perturb=False, progress=False)
    for data in (TensorDataset(images, labels), {"x": images, "y": labels}):
        found = reference_outputs(net, data, size=90, perturb=False, progress=False)
        assert torch.equal(found.labels, expected.labels)
        torch.testing.assert_close(found.logits, expected.logits)


def test_a_sorted_loader_is_warned_about(trained) -> None:
    net, images, labels = trained
    order = labels.argsort()
    loader = DataLoader(TensorDataset(images[order], labels[order]), batch_size=50)
    with pytest.warns(UserWarning, match=r"no reference is of class 1, 2, 3 \(3 of 4 classes\): the first 100 inputs"):
        reference_outputs(net, loader, size=100, progress=False)
    assert len(reference_outputs(net, loader, progress=False)) == 1200


def test_only_where_the_first_inputs_were_taken_it_says_so(trained) -> None:
    net, images, labels = trained
    three = labels < 3
    several = TensorDataset(images[three], labels[three])
    for data, size in (
        (several, 100),
        (several, int(three.sum())),
        (DataLoader(several, batch_size=50), int(three.sum())),
    ):  # sampled, and all there is: a warning would be an error here
        assert len(reference_outputs(net, data, size=size, progress=False)) == size
    with pytest.warns(UserWarning, match="no reference is of class 3 .* the first 100 inputs"):
        reference_outputs(net, iter(DataLoader(several, batch_size=50)), size=100, progress=False)


def test_batches_in_other_units_are_perturbed_in_the_range_so_far() -> None:
    images = 6 * torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(0)) - 3
    images[0, 0, 0, :2] = torch.tensor([-3.0, 3.0])  # the first batch has the whole range
    whole = perturbed(images)
    parts = [inputs for inputs, _ in References([(part, torch.zeros(len(part))) for part in images.split(30)],
                                                size=200, perturbs=True, seed=0, batch_size=1)]  # fmt: skip
    torch.testing.assert_close(torch.cat(parts), whole, rtol=1e-5, atol=1e-5)


def test_labels_may_be_a_list(trained) -> None:
    net, images, labels = trained
    found = reference_outputs(net, (images[:20].numpy(), labels[:20].tolist()), progress=False)
    assert torch.equal(found.logits, reference_outputs(net, (images[:20], labels[:20]), progress=False).logits)
