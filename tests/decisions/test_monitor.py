"""The monitor: false alarms, shifts, estimates, bounded memory, files."""

from __future__ import annotations

import math
import time
import tracemalloc

import numpy as np
import pytest

from qipf.decisions.accuracy import METHODS
from qipf.decisions.decision import Decision
from qipf.decisions.monitor import Monitor
from qipf.decisions.sequential import BLOCK, JUMP, STAKES, SequentialTest
from qipf.scores import Entropy
from qipf.scores.saving import load
from qipf.tasks.outputs import Outputs


def draw(rng: np.random.Generator, count: int, scale: float = 3.0) -> Outputs:
    logits = scale * rng.standard_normal((count, 4))
    noise = rng.gumbel(size=(count, 4))  # labels are drawn from the softmax: the network is calibrated
    return Outputs(logits, labels=np.argmax(logits + noise, axis=1))


def bare(outputs: Outputs) -> Outputs:
    return Outputs(outputs.logits)


@pytest.fixture
def monitor(rng) -> Monitor:
    scorer = Entropy().fit()
    held_out = draw(rng, 2000)
    scorer.decision = Decision("accept>=0.6").fit_scorer(scorer, held_out)
    return Monitor().fit_scorer(scorer, held_out)


@pytest.mark.parametrize("method", ["atc", "probability"])
def test_the_interval_of_the_accuracy_covers_the_noise_of_held_out_and_live_rows(method: str) -> None:
    rng, scorer, covered = np.random.default_rng(0), Entropy().fit(), 0
    truth = float(draw(rng, 200_000).correct.mean())
    for _ in range(100):
        watched = Monitor(method=method).fit_scorer(scorer, draw(rng, 300))
        watched.add_scores(scorer(bare(draw(rng, 1000))))
        status = watched.status()
        covered += status.low <= truth <= status.high
    assert covered >= 90  # 95 are expected; the noise of the live rows alone covers about 65


@pytest.mark.parametrize("before", [0, 20_000])
def test_a_change_is_found_also_after_a_long_time(before: int, rng) -> None:
    test = SequentialTest(rng.standard_normal(2000))
    test.add(rng.standard_normal(before))
    assert test.peak < math.log(100)
    test.add(rng.standard_normal(1500) + 0.5)
    assert test.peak > math.log(100)
    less = SequentialTest(rng.standard_normal(2000))
    less.add(rng.standard_normal(3000) - 0.5)
    assert less.peak > math.log(100)


def test_batches_do_not_matter(rng) -> None:
    reference, live = rng.standard_normal(500), rng.standard_normal(2345)
    whole, parts = SequentialTest(reference), SequentialTest(reference)
    whole.add(live)
    for part in np.split(live, [1, 7, 50, 51, 1000]):
        parts.add(part)
    assert parts.evidence == pytest.approx(whole.evidence, rel=1e-9)
    assert parts.place == whole.place
    np.testing.assert_array_equal(parts.counts, whole.counts)


def test_estimates_without_a_shift_agree_with_the_truth(monitor: Monitor, rng) -> None:
    live = draw(rng, 5000)
    monitor.add(bare(live))
    status = monitor.status()
    truth = float(np.mean(live.correct))
    assert set(status.estimates) == set(METHODS) - {"posterior"}
    for estimate in status.estimates.values():
        assert estimate == pytest.approx(truth, abs=0.03)
    assert status.low < status.accuracy < status.high
    assert not status.alarm
    assert status.accepted == pytest.approx(0.6, abs=0.03)
    np.testing.assert_allclose(status.classes, 0.25, atol=0.03)
    assert status.labelled == 0
    assert math.isnan(status.labelled_accuracy)


def test_estimates_follow_a_shift_and_the_alarm_is_raised(monitor: Monitor, rng) -> None:
    live = draw(rng, 5000, scale=1.0)  # still calibrated, and much less sure
    monitor.add(bare(live))
    status, truth = monitor.status(), float(np.mean(live.correct))
    assert truth < status.reference_accuracy - 0.15
    assert status.estimates["probability"] == pytest.approx(truth, abs=0.05)
    assert status.estimates["confidence"] == pytest.approx(truth, abs=0.03)
    assert status.alarm
    assert status.accepted < 0.3  # pyright: ignore[reportOptionalOperand]


def test_labels_that_arrive_later_are_counted(monitor: Monitor, rng) -> None:
    live = draw(rng, 400)
    monitor.add(bare(live))
    monitor.add_labels(live.correct[:300])
    status = monitor.status()
    assert status.labelled == 300
    assert status.labelled_accuracy == pytest.approx(np.mean(live.correct[:300]))
    assert status.labelled_interval[0] < status.labelled_accuracy < status.labelled_interval[1]
    monitor.add(live)
    assert monitor.status().labelled == 700


def test_parts_of_the_traffic_merge(monitor: Monitor, rng) -> None:
    live = draw(rng, 3000)
    one, two, whole = monitor.empty(), monitor.empty(), monitor.empty()
    one.add(live[:1000])
    two.add(live[1000:])
    whole.add(live)
    merged, expected = one.merge(two).status(), whole.status()
    assert merged.rows == expected.rows == 3000
    assert merged.estimates == pytest.approx(expected.estimates)
    assert merged.classes == expected.classes
    assert merged.labelled_accuracy == expected.labelled_accuracy
    assert not merged.alarm
    other = Monitor().fit_scorer(Entropy().fit(), draw(rng, 100))
    with pytest.raises(ValueError, match="reference"):
        one.merge(other)


def test_an_alarm_survives_merging(monitor: Monitor, rng) -> None:
    shifted, quiet, more = monitor.empty(), monitor.empty(), monitor.empty()
    while not shifted.status().alarm:
        shifted.add_scores(Entropy()(draw(rng, 1, scale=0.1).logits))
    assert shifted.status().evidence < 200  # an average of three would be less than 100
    for each in (quiet, more):
        each.add_scores(Entropy()(draw(rng, 5000).logits))
    whole = monitor.empty().merge(quiet).merge(shifted).merge(more)
    status = whole.status()
    assert status.alarm
    assert status.limit == pytest.approx(100)
    assert status.false_alarm == pytest.approx(0.03)  # three monitors have seen something
    again = Monitor.from_state(whole.state())
    assert again.status() == status


def test_merged_capitals_are_averaged_over_all_parts(rng) -> None:
    reference = rng.standard_normal(500)
    parts = [SequentialTest(reference) for _ in range(3)]
    for number, part in enumerate(parts):
        part.add(rng.standard_normal(400 * (number + 1)))
    mean = np.mean([np.exp(part.log_capital) for part in parts], axis=0)
    whole = SequentialTest(reference)
    for part in parts:
        whole.merge(part)
    np.testing.assert_allclose(np.exp(whole.log_capital), mean, rtol=1e-12)
    assert whole.parts == 3
    pairs = [SequentialTest(reference), SequentialTest(reference)]
    pairs[0].merge(parts[0])
    pairs[1].merge(parts[1])
    pairs[1].merge(parts[2])
    pairs[0].merge(pairs[1])
    np.testing.assert_allclose(pairs[0].log_capital, whole.log_capital, rtol=1e-12)


def test_capital_is_that_of_the_formula(rng) -> None:
    """Ranks and bets one by one, from the definition, with the same random numbers."""
    reference, live = rng.standard_normal(400), rng.standard_normal(230) + 0.3
    test = SequentialTest(reference, seed=5)
    ties, counts = np.random.default_rng(), test.reference.astype(int).tolist()
    ties.bit_generator.state = test.random.bit_generator.state
    capital, peak = np.full(STAKES.size, 1 / STAKES.size), 1.0
    for number, score in enumerate(live):
        if number and number % BLOCK == 0:
            capital = (1 - JUMP) * capital + JUMP * capital.sum() / STAKES.size
        place = int(np.sum(test.edges <= score))
        counts[place] += 1
        rank = (sum(counts[:place]) + ties.random() * counts[place]) / sum(counts)
        capital = capital * (1 + STAKES * (rank - 0.5))
        if number % BLOCK == BLOCK - 1 or number == live.size - 1:
            peak = max(peak, capital.sum())
    test.add(live)
    np.testing.assert_allclose(np.exp(test.log_capital), capital, rtol=1e-9)
    assert math.exp(test.peak) == pytest.approx(peak)


def test_the_history_goes_on_from_a_file_with_the_same_windows(monitor: Monitor, rng) -> None:
    scores = rng.random(30_000)
    whole = monitor.empty()
    for part in np.array_split(scores[:20_000], 900):  # enough for windows to be joined
        whole.add_scores(part)
    again = Monitor.from_state(whole.state())
    for part in np.array_split(scores[20_000:], 450):
        whole.add_scores(part)
        again.add_scores(part)
    np.testing.assert_array_equal(again.history.state(), whole.history.state())
    assert whole.history.state()[:, 0].sum() == 30_000


def test_a_large_batch_counts_as_its_parts_do(monitor: Monitor, rng, monkeypatch) -> None:
    live, whole, parts = draw(rng, 5000), monitor.empty(), monitor.empty()
    whole.add(live)
    monkeypatch.setattr("qipf.decisions.monitor.CHUNK", 700)
    parts.add(live)
    one, other = whole.status(), parts.status()
    assert one.estimates == pytest.approx(other.estimates, rel=1e-12)
    assert (one.rows, one.accepted, one.classes, one.labelled) == (5000, other.accepted, other.classes, 5000)
    assert one.evidence == pytest.approx(other.evidence)
    bad = draw(rng, 2000)
    bad.logits[1500] = np.nan  # in the third part
    with pytest.raises(ValueError, match=r"NaN|finite"):
        parts.add(bad)
    assert parts.status() == other


def test_it_goes_on_from_a_file(monitor: Monitor, rng, tmp_path) -> None:
    live = draw(rng, 2000)
    whole = monitor.empty()
    whole.add(live[:700])
    whole.save(tmp_path / "monitor.qipf")
    again = Monitor.load(tmp_path / "monitor.qipf")
    assert again.status() == whole.status()
    scores = Entropy()(live.logits[700:])
    for each in (whole, again):
        each.add_scores(scores, predicted=live.predicted[700:])
    assert again.status() == whole.status()
    scorer = Entropy().fit()
    scorer.attach(whole)
    scorer.save(tmp_path / "entropy.qipf")
    loaded = load(tmp_path / "entropy.qipf").attachments["monitor"]
    assert isinstance(loaded, Monitor)
    assert loaded.status() == whole.status()
    with pytest.raises(ValueError, match="monitor"):
        Monitor.load(tmp_path / "entropy.qipf")
    raw = (tmp_path / "monitor.qipf").read_bytes()
    (tmp_path / "monitor.qipf").write_bytes(raw[:-3])
    with pytest.raises(ValueError, match="truncated"):
        Monitor.load(tmp_path / "monitor.qipf")


def test_a_million_predictions_in_bounded_memory(monitor: Monitor) -> None:
    rng = np.random.default_rng(0)
    scores, predicted = rng.random(1_000_000), rng.integers(0, 4, 1_000_000)
    tracemalloc.start()
    monitor.add_scores(scores, predicted=predicted)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6
    started = time.process_time()
    monitor.add_scores(scores, predicted=predicted)
    assert time.process_time() - started < 2
    assert monitor.status().rows == 2_000_000
    assert len(monitor.history.state()) <= 200


def test_errors_say_what_to_do(monitor: Monitor) -> None:
    with pytest.raises(ValueError, match="method"):
        Monitor(method="crystal ball")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="predicted"):
        monitor.add_scores(np.zeros(2), predicted=np.array([0]))
    with pytest.raises(ValueError, match="NaN"):
        monitor.add_scores(np.array([np.nan]))
    with pytest.raises(ValueError, match="posterior"):
        monitor.add_scores(np.zeros(2), predicted=np.array([0, 1]), estimates={"crystal": np.zeros(2)})
    with pytest.raises(ValueError, match="confidence"):
        monitor.add_scores(np.zeros(2), predicted=np.array([0, 1]), estimates={"confidence": np.zeros(3)})
    assert sum(monitor.status().classes) == 0
    assert monitor.status().rows == 0
    with pytest.raises(ValueError, match="correct"):
        monitor.add_labels(np.array([2]))
    with pytest.raises(ValueError, match="ten"):
        Monitor().fit_scorer(Entropy(), draw(np.random.default_rng(0), 5))
