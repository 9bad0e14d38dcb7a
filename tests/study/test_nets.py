import json

import pytest
import torch
from safetensors import safe_open

from qipf.study import datasets, nets


def parameters(net: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def convolution(inputs: int, outputs: int) -> int:
    return 9 * inputs * outputs + outputs


@pytest.mark.parametrize(("name", "count"), [
    ("lenet", 61_706),
    ("resnet18", 11_173_962),
    ("vgg3", convolution(3, 32) + convolution(32, 32) + convolution(32, 64) + convolution(64, 64)
     + convolution(64, 128)
     + convolution(128, 128)
     + 2 * 2 * (32 + 64 + 128) + (2048 + 1) * 128 + (128 + 1) * 10),
    ("small-cnn", convolution(1, 16) + convolution(16, 32) + (128 + 1) * 64 + (64 + 1) * 10),
    ("mlp-regression", (1 + 1) * 100 + 2 * 101 * 100 + 101),
    ("mlp-moons", (2 + 1) * 20 + 2 * 21 * 20 + 21 * 2),
])  # fmt: skip
def test_parameter_counts(name: str, count: int) -> None:
    assert parameters(nets.build(name)) == count


def test_lenet_computes_what_its_layers_say() -> None:
    net = nets.build("lenet", seed=1).double()
    x = torch.rand(2, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    w = {name: value.detach() for name, value in net.named_parameters()}

    def convolve(images: torch.Tensor, kernel: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        windows = images.unfold(2, 5, 1).unfold(3, 5, 1)
        return torch.einsum("ncxyij,ocij->noxy", windows, kernel) + bias[:, None, None]

    def pool(images: torch.Tensor) -> torch.Tensor:
        return images.unfold(2, 2, 2).unfold(3, 2, 2).mean((4, 5))

    padded = torch.zeros(2, 1, 32, 32, dtype=torch.float64)
    padded[:, :, 2:-2, 2:-2] = x
    h = pool(torch.tanh(convolve(padded, w["conv1.weight"], w["conv1.bias"])))
    h = pool(torch.tanh(convolve(h, w["conv2.weight"], w["conv2.bias"]))).flatten(1)
    assert h.shape == (2, 400)
    for layer in ("dense1", "dense2"):
        h = torch.tanh(h @ w[f"{layer}.weight"].T + w[f"{layer}.bias"])
    expected = h @ w["dense3.weight"].T + w["dense3.bias"]
    torch.testing.assert_close(net(x), expected)


@pytest.mark.parametrize("name", ["lenet", "vgg3", "resnet18", "small-cnn"])
@pytest.mark.parametrize(("channels", "size", "classes"), [(1, 28, 10), (3, 32, 7)])
def test_image_nets_take_any_channels_sizes_and_classes(name: str, channels: int, size: int, classes: int) -> None:
    net = nets.build(name, channels=channels, size=size, classes=classes).eval()
    assert net(torch.rand(2, channels, size, size)).shape == (2, classes)


def test_a_seed_gives_the_same_weights_and_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    first, second, other = (nets.build("small-cnn", seed=seed).state_dict() for seed in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["0.weight"], other["0.weight"])


def test_build_errors() -> None:
    with pytest.raises(ValueError, match="alexnet"):
        nets.build("alexnet")
    with pytest.raises(ValueError, match="small"):
        nets.build("lenet", size=8)


def test_spec_for_reads_the_dataset() -> None:
    assert nets.spec_for("small-cnn", datasets.load("digits")) == nets.Spec("small-cnn", 10, 1, 8)
    assert nets.spec_for("mlp-moons", datasets.load("two-moons")) == nets.Spec("mlp-moons", 2, 2, 1)
    with pytest.raises(ValueError, match="vectors"):
        nets.spec_for("lenet", datasets.load("regression"))


def test_save(tmp_path) -> None:
    net = nets.build("vgg3", classes=4, channels=1, size=16, seed=3)
    net(torch.rand(8, 1, 16, 16))  # moves the batch-norm statistics, which must survive
    nets.save(net, tmp_path / "net.safetensors", dataset="none", test_accuracy=0.5)
    with safe_open(tmp_path / "net.safetensors", "pt") as file:
        assert json.loads(file.metadata()["about"]) == {"dataset": "none", "test_accuracy": 0.5}
        assert all(torch.equal(file.get_tensor(name), value) for name, value in net.state_dict().items())
