"""What a probe reads of the networks that people have, each written out here or taken from the study."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from qipf.data.batches import Source
from qipf.runners.features import WIDEST
from qipf.runners.torch import TorchRunner
from qipf.study import nets
from qipf.tasks.collect import collect


def found(model: nn.Module, *arguments: Tensor, **keywords: Tensor) -> str:
    runner = TorchRunner(model.eval())
    batch = next(runner.batches(Source(keywords or arguments, 4)))
    return str(runner.best_reading(batch))


@pytest.mark.parametrize(
    ("name", "shape", "width"),
    [("lenet", (1, 28, 28), 16 * 25), ("vgg3", (3, 32, 32), 128 * 16), ("resnet18", (3, 32, 32), 512 * 4)],
)
def test_networks_of_the_study_give_their_last_map(name, shape, width) -> None:
    net = nets.build(name, seed=0).eval()
    images = torch.rand(2, *shape)
    space = found(net, images)
    rows = collect(net, images, layers=space, progress=False).layers[space]
    assert rows.shape == (2, width)
    assert width <= WIDEST


class Residual(nn.Module):
    """The outline of a ResNet of torchvision: four stages, pooling to 1x1, one linear layer."""

    def __init__(self, channels: int = 96) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 2, 1)
        self.layer1 = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.BatchNorm2d(8), nn.ReLU())
        self.layer10 = nn.Sequential(nn.Conv2d(8, channels, 3, 2, 1), nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.avgpool(self.layer10(self.layer1(self.conv1(x)))).flatten(1))


def test_a_pooled_map_of_one_place_is_not_what_is_read() -> None:
    assert found(Residual(), torch.rand(2, 3, 16, 16)) == "layer10@4x4"
    assert found(Residual(), torch.rand(2, 3, 64, 64)) == "layer10@4x4"  # 96 * 5 * 5 would be more than 2,048
    assert found(Residual(4000), torch.rand(2, 3, 16, 16)) == "layer10@1x1"


class VisionTransformer(nn.Module):
    """Patches, class tokens, an encoder, and one head for each class token."""

    def __init__(self, heads: int = 1) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.classes = nn.Parameter(torch.zeros(1, heads, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(16)
        self.heads = nn.ModuleList(nn.Linear(16, 5) for _ in range(heads))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).mT
        x = self.norm(self.blocks(torch.cat([self.classes.expand(len(x), -1, -1), x], dim=1)))
        return torch.stack([head(x[:, place]) for place, head in enumerate(self.heads)]).mean(0)


@pytest.mark.parametrize("heads", [1, 2])
def test_a_vision_transformer_gives_its_class_tokens_and_the_mean_of_the_others(heads) -> None:
    net, images = VisionTransformer(heads).eval(), torch.rand(2, 3, 16, 16)
    space = found(net, images)
    assert space == f"norm@tokens{heads}"
    tokens: list[Tensor] = []
    handle = net.norm.register_forward_hook(lambda module, inputs, output: tokens.append(output))
    rows = collect(net, images, layers=space, progress=False).layers[space]
    handle.remove()
    expected = torch.cat([tokens[0][:, :heads].flatten(1), tokens[0][:, heads:].mean(1)], dim=1)
    torch.testing.assert_close(rows, expected)


class TextClassifier(nn.Module):
    """The outline of a text classifier of Hugging Face: ids and a mask go in, an object with logits comes out."""

    def __init__(self, pool: str, nested: bool = False) -> None:
        super().__init__()
        self.pool = pool
        self.embeddings = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
        self.classifier = nn.Linear(16, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        x = self.encoder(self.embeddings(input_ids), src_key_padding_mask=attention_mask == 0)
        if self.pool == "every":  # logits of every token, of which that of the last one counts
            logits = self.classifier(x)
            return {"logits": logits[torch.arange(len(x)), attention_mask.sum(1) - 1]}
        mask = attention_mask[..., None].to(x)
        return {"logits": self.classifier(x[:, 0] if self.pool == "first" else (x * mask).sum(1) / mask.sum(1))}


def texts(count: int = 4, length: int = 7) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    mask = (torch.arange(length) < torch.randint(3, length + 1, (count, 1), generator=generator)).long()
    return {"input_ids": torch.randint(1, 50, (count, length), generator=generator) * mask, "attention_mask": mask}


@pytest.mark.parametrize("pool", ["first", "mean"])
def test_a_text_classifier_gives_what_goes_into_its_classifier(pool) -> None:
    net, inputs = TextClassifier(pool).eval(), texts()
    space = found(net, **inputs)
    assert space == "classifier@input"
    outputs = collect(net, inputs, layers=space, progress=False)
    torch.testing.assert_close(net.classifier(outputs.layers[space]), outputs.logits)


def test_a_classifier_of_every_token_gives_the_mean() -> None:
    assert found(TextClassifier("every"), **texts()) == "encoder"


def test_a_map_with_as_many_channels_as_classes_is_read_unless_it_makes_the_logits() -> None:
    images = torch.rand(2, 3, 16, 16)
    head = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 5, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(5, 5),
    )  # fmt: skip
    assert found(head, images) == "3@5x5"
    everywhere = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 5, 1), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten()
    )
    assert found(everywhere, images) == "1@7x7"


def test_a_table_gives_the_first_hidden_layer() -> None:
    net = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 9), nn.ReLU(), nn.Linear(9, 3))
    assert found(net, torch.rand(2, 6)) == "0@rows"


class ChannelsLast(nn.Module):
    """The outline of a Swin transformer: maps of shape (N, height, width, channels)."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 24, 4, 4)
        self.norm = nn.LayerNorm(24)
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.patches(x).permute(0, 2, 3, 1)).mean((1, 2)))


def test_a_map_with_channels_last() -> None:
    net, images = ChannelsLast().eval(), torch.rand(2, 3, 32, 24)
    assert found(net, images) == "norm@8x6-last"
    rows = collect(net, images, layers="norm@2x2-last", progress=False).layers["norm@2x2-last"]
    maps = net.norm(net.patches(images).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    torch.testing.assert_close(rows, nn.functional.adaptive_avg_pool2d(maps, 2).flatten(1))


def test_a_signal_gives_the_mean_over_its_length() -> None:
    net = nn.Sequential(
        nn.Conv1d(2, 6, 3), nn.BatchNorm1d(6), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, 4)
    ).eval()
    signals = torch.rand(2, 2, 30)
    space = found(net, signals)
    assert space == "1"
    rows = collect(net, signals, layers=space, progress=False).layers[space]
    torch.testing.assert_close(rows, net[1](net[0](signals)).mean(2))


def test_a_single_layer_is_read_at_its_input_and_nothing_to_read_is_an_error() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    assert found(net, torch.rand(2, 12)) == "1@input"
    with pytest.raises(ValueError, match="function"):
        found(nn.Linear(4, 3), torch.rand(2, 4))
