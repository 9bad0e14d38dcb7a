"""What is timed: the forward pass and the method, in one batch of the same size."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from qipf.study.run import cells  # noqa: E402
from qipf.tasks.classes import Classes  # noqa: E402

PARENTS = {"network": {}, "fit": {}}


class Counting(torch.nn.Module):
    """Sums of the inputs, and the sizes of the batches it saw; more than `room` inputs do not fit."""

    def __init__(self, room: int = 10_000) -> None:
        super().__init__()
        self.sizes, self.room = [], room

    def forward(self, x):
        self.sizes.append(len(x))
        if len(x) > self.room:
            raise torch.OutOfMemoryError("out of memory")
        return x.flatten(1)[:, :3]


@pytest.fixture
def timed(monkeypatch):
    """Times a method of two passes on 700 inputs, more than it takes at once if it is not told."""

    def run(net, kind="mc-dropout"):
        from qipf.scores import Entropy

        def summarise(x, *, batch_size=500, progress=True):
            return [net(part) for _ in range(2) for part in x.split(batch_size)]

        method = SimpleNamespace(passes=2, summarise=summarise)
        x = torch.rand(700, 1, 4, 4)
        monkeypatch.setitem(cells.SAMPLES, "cpu", 700)
        monkeypatch.setattr(
            cells, "network_of", lambda *_: (net, SimpleNamespace(predicts="classes", task=Classes()), "cpu")
        )
        monkeypatch.setattr(cells, "many_of", lambda *_: method)
        monkeypatch.setattr(cells, "scorer_of", lambda *_: Entropy())
        monkeypatch.setattr(
            cells.study_data, "inputs_of", lambda data, group, *_: SimpleNamespace(inputs=x[: group.size])
        )
        return cells.time(SimpleNamespace(data=None), {"kind": kind}, PARENTS).facts

    return run


@pytest.mark.parametrize("kind", ["mc-dropout", "entropy"])
def test_both_see_one_batch(timed, kind):
    net = Counting()
    facts = timed(net, kind)
    assert facts["samples"] == 700
    assert facts["ratio"] == pytest.approx(facts["method_ms"] / facts["forward_ms"])
    if kind == "mc-dropout":
        assert set(net.sizes) == {700}


def test_a_batch_that_does_not_fit_is_halved(timed):
    assert timed(Counting(room=200))["samples"] == 175
    with pytest.raises(torch.OutOfMemoryError):
        timed(Counting(room=0))
