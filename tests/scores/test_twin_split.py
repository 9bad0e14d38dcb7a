"""A network is split behind a module, and the copy of the rest reproduces its logits or is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import qipf
from qipf._common.errors import Problem
from qipf.runners.halves import Copied, split_network
from qipf.runners.loading import open_model
from qipf.study import nets
from qipf.tasks.collect import begin


class Texts(nn.Module):
    """Tokens with a mask, blocks with residual connections, and logits in a dict, as text classifiers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, 4, enable_nested_tensor=False)
        self.dense = nn.Linear(16, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        hidden = self.blocks(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)
        kept = attention_mask[:, :, None].to(hidden.dtype)
        return {"logits": self.dense((hidden * kept).sum(1) / kept.sum(1))}


class Bypass(nn.Module):
    """What the first layer returns goes past the second."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = self.a(x)
        return self.c(torch.cat([first, self.b(first)], 1))


def texts() -> dict[str, Tensor]:
    mask = torch.ones(8, 5, dtype=torch.long)
    mask[4:, 3:] = 0
    return {"input_ids": torch.randint(0, 50, (8, 5)), "attention_mask": mask}


NETWORKS: dict[str, tuple[Any, Any, str]] = {
    "lenet": (nets.LeNet, lambda: torch.rand(8, 1, 28, 28), "conv1"),
    "vgg": (lambda: nets.build("vgg3"), lambda: torch.rand(8, 3, 32, 32), "1.0"),
    "resnet": (nets.ResNet18, lambda: torch.rand(8, 3, 32, 32), "blocks.3"),
    "texts": (Texts, texts, "blocks.layers.1"),
    "table": (
        lambda: nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3), nn.Softmax(1)),
        lambda: torch.rand(8, 6),
        "0",
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_copy_reproduces_the_logits_of_other_inputs(name: str) -> None:
    torch.manual_seed(0)
    make, inputs, expected = NETWORKS[name]
    net = make().eval()
    start = begin(net, inputs(), task="classes")
    cut, half = split_network(start.runner, start.first)
    assert cut.split == expected
    assert 0.3 < cut.share < 0.8
    layer = Copied(cut, half.weights())
    other = next(start.runner.batches(begin(net, inputs(), task="classes").source))
    with start.runner.reading({"copy": layer.spec(start.runner)}) as run:
        found = run(other)
    torch.testing.assert_close(found.features["copy"], found.logits)
    assert set(half.weights()) < set(net.state_dict())  # no weight in front of the split is copied


def test_a_named_module_and_a_share_decide_where() -> None:
    start = begin(nets.ResNet18().eval(), torch.rand(8, 3, 32, 32), task="classes")
    assert split_network(start.runner, start.first, "blocks.5")[0].split == "blocks.5"
    assert split_network(start.runner, start.first, depth=0.25)[0].split == "blocks.5"
    with pytest.raises(Problem, match="blocks"):
        split_network(start.runner, start.first, "blocks.55")
    with pytest.raises(Problem, match="trained"):
        split_network(start.runner, start.first, "dense")


def test_a_connection_past_the_split_is_refused() -> None:
    start = begin(Bypass().eval(), torch.rand(8, 6), task="classes")
    with pytest.raises(Problem, match="bypasses"):
        split_network(start.runner, start.first, "b")
    assert split_network(start.runner, start.first)[0].split == "a"


class Rare(nn.Module):
    """The first layer decides the sign of few logits."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        first = self.a(x)
        rare = first[:, :1] > first[:, :1].detach().kthvalue(len(x) - 1, dim=0).values
        logits = self.c(torch.relu(self.b(first)))
        return torch.where(rare, -logits, logits)


class Training(nn.Module):
    """Returns something else in training mode, as some networks with several outputs do."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Any:
        hidden = torch.relu(self.b(self.a(x)))
        return (hidden, self.c(hidden)) if self.training else self.c(hidden)


@pytest.mark.parametrize("make", [Rare, Training])
def test_a_copy_that_differs_in_few_rows_or_in_training_is_refused(make: Any) -> None:
    torch.manual_seed(0)
    start = begin(make().eval(), torch.rand(64, 6), task="classes")
    with pytest.raises(Problem, match="part"):
        split_network(start.runner, start.first, "b")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_avoided() -> None:
    net = Texts()
    net.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 4)  # uses them
    start = begin(net.eval(), texts(), task="classes")
    cut, half = split_network(start.runner, start.first)
    assert cut.split == "blocks.layers.1"
    assert torch.backends.mha.get_fastpath_enabled()
    layer = Copied(cut, half.weights())
    found = qipf.collect(net, texts(), layers=(layer,), progress=False)
    torch.testing.assert_close(found.layers[str(layer)], found.logits)


class Closure(nn.Module):
    """The last layer is called through a function that holds this network, not its copy."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.last = lambda x: self.c(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.relu(self.b(self.a(x))))


class Tied(nn.Module):
    """The last layer is the first one, transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(torch.relu(self.b(self.a(x))), self.a.weight.T)


@pytest.mark.parametrize("make", [Closure, Tied])
def test_a_copy_that_would_train_the_network_itself_is_refused(make: Any) -> None:
    net, x = make().eval(), torch.rand(120, 6)
    with pytest.raises(Problem, match="original network"):
        split_network(begin(net, x, task="classes").runner, begin(net, x, task="classes").first, "a")
    with pytest.warns(UserWarning, match="twin"):
        uq = qipf.default(
            net, (x, torch.arange(120) % (3 if make is Closure else 6)), effort="thorough", progress=False
        )
    assert isinstance(uq, qipf.Probe)
    assert all(one.grad is None for one in net.parameters())


def test_the_copy_has_no_hooks_of_the_user_but_those_that_compute_weights() -> None:
    net, x, fired = nets.LeNet().eval(), torch.rand(8, 1, 28, 28), []
    prune.l1_unstructured(net.dense3, "weight", 0.5)
    for part in net.modules():
        part.register_forward_hook(lambda part, args, output: fired.append(id(part)))
        part.register_forward_pre_hook(lambda part, args: fired.append(id(part)))
        part.register_full_backward_hook(lambda part, given, made: fired.append(id(part)))
    start = begin(net, x, task="classes")
    _, half = split_network(start.runner, start.first, "conv2")
    assert set(fired) == {id(part) for part in net.modules()}
    inside = [one for one in half.network.modules() if one._forward_hooks or one._forward_pre_hooks]
    assert inside == [half.network.dense3]
    with start.runner.reading({"copy": half.spec}) as run:
        found = run(start.first)
    torch.testing.assert_close(found.features["copy"], found.logits)


def test_a_network_of_one_layer_cannot_be_split() -> None:
    start = begin(nn.Linear(6, 3), torch.rand(8, 6), task="classes")
    with pytest.raises(Problem, match="split"):
        split_network(start.runner, start.first)


def test_programs_and_other_libraries_have_no_copy() -> None:
    net, x = nets.LeNet().eval(), torch.rand(8, 1, 28, 28)
    start = begin(net, x, task="classes")
    cut, half = split_network(start.runner, start.first)
    with pytest.raises(Problem, match="program"):
        Copied(cut, half.weights()).spec(open_model(torch.export.export(net, (x,))))
    tree = pytest.importorskip("sklearn.tree").DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(Problem, match="torch"):
        Copied(cut, half.weights()).spec(open_model(tree))
    with pytest.raises(Problem, match="network"):
        Copied(cut, half.weights() | {"dense3.bias": half.weights()["dense3.bias"][:3]}).spec(start.runner)


@pytest.mark.parametrize(
    ("kind", "size", "expected"),
    [("Bert", "hidden_size", "encoder.layer.1"), ("DistilBert", "dim", "layer.1"), ("ViT", "hidden_size", "layers.1")],
)
def test_transformers_are_split_between_blocks(kind: str, size: str, expected: str) -> None:
    transformers = pytest.importorskip("transformers")
    blocks, heads = ("n_layers", "n_heads") if size == "dim" else ("num_hidden_layers", "num_attention_heads")
    named = {size: 32, blocks: 4, heads: 4, "vocab_size": 50, "image_size": 32, "patch_size": 8}
    task = "Image" if kind == "ViT" else "Sequence"
    net = getattr(transformers, f"{kind}For{task}Classification")(
        getattr(transformers, f"{kind}Config")(**named)
    ).eval()
    start = begin(net, torch.rand(8, 3, 32, 32) if task == "Image" else texts(), task="classes")
    cut, _ = split_network(start.runner, start.first)
    assert cut.split.endswith(expected)


def test_a_twin_of_a_text_classifier_has_no_views() -> None:
    torch.manual_seed(0)
    ids = torch.randint(1, 50, (120, 5))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    net = Texts().eval()
    twin = qipf.Twin(epochs=1).fit(net, (batch, ids[:, 1] % 3), progress=False)
    assert twin.score(net, batch, progress=False).shape == (120,)
    with pytest.raises(Problem, match="view"):
        twin.score(net, batch, views=2)
    with pytest.raises(Problem, match="precision"):
        qipf.Twin().fit(net.bfloat16(), (batch, ids[:, 1] % 3), progress=False)
    with pytest.raises(Problem, match="twin"):
        qipf.Twin().fit(nn.Linear(6, 2), (torch.rand(9, 6), torch.zeros(9, 2)), task="labels", progress=False)
