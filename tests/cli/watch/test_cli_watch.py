"""`qipf watch`: tables that grow, the page, metrics, and errors."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from live_tables import as_csv, columns, draw, measured

import qipf
from qipf.cli import main
from qipf.data.tail import CHUNK, Tail


def once(*words: str) -> int:
    return main(["watch", "scores", "--reference", "net.qipf", "--once", *words])


def test_a_folder_of_both_kinds_is_counted_once(place: Path, rng, capsys) -> None:
    live = draw(rng, 900)
    Path("scores/a.csv").write_text(as_csv(columns(live[:400])))
    pq.write_table(pa.table(columns(live[400:])), "scores/b.parquet")
    Path("scores/.hidden.csv").write_text("nonsense")
    Path("scores/notes.txt").write_text("nonsense")
    assert once("--output", "page.html", "--output", "qipf.prom") == 0
    assert "900" in capsys.readouterr().out
    found = measured(Path("qipf.prom").read_text())
    assert found["qipf_predictions_total"] == found["qipf_labelled_total"] == 900
    assert found["qipf_labelled_accuracy"] == pytest.approx(np.mean(live.correct))
    assert found["qipf_accuracy_estimate"] == pytest.approx(np.mean(live.correct), abs=0.05)
    assert found["qipf_accepted_ratio"] == pytest.approx(0.8, abs=0.06)
    assert found['qipf_class_ratio{class="0"}'] == pytest.approx(np.mean(live.predicted == 0))
    assert found["qipf_alarm"] == 0
    text = Path("page.html").read_text()
    assert "900" in text
    assert "http-equiv" not in text
    assert "<script" not in text
    assert not re.search(r"""(src|href)=["']https?:""", text)


def test_files_are_read_from_where_the_last_look_ended(place: Path, rng) -> None:
    table = columns(draw(rng, 60))
    text, file = as_csv(table), Path("scores/a.csv")
    tail = Tail(Path("scores"))
    seen: list[float] = []

    def look() -> int:
        new = [values for _, part in tail.new() for values in part["uncertainty"].tolist()]
        seen.extend(new)
        return len(new)

    assert look() == 0
    file.write_text(text[:7])  # not even a whole header
    assert look() == 0
    cut = text.index("\n", 1200) + 5  # in the middle of a line
    file.write_text(text[:cut])
    assert look() == text[:cut].count("\n") - 1
    assert look() == 0
    with file.open("a") as more:
        more.write(text[cut:])
    look()
    np.testing.assert_array_equal(seen, table["uncertainty"])
    half = {name: values[:20] for name, values in table.items()}
    pq.write_table(pa.table(half), "scores/b.parquet")
    assert look() == 20
    Path("scores/c.parquet").write_bytes(Path("scores/b.parquet").read_bytes()[:50])
    assert look() == 0
    assert list(tail.waiting) == [Path("scores/c.parquet")]
    pq.write_table(pa.table(table), "scores/b.parquet")
    pq.write_table(pa.table(half), "scores/c.parquet")
    assert look() == 40 + 20
    assert not tail.waiting
    file.write_text("uncertainty\n")
    with pytest.raises(qipf._common.errors.Problem, match="shorter"):
        look()


def test_a_shift_raises_the_alarm(place: Path, rng, capsys) -> None:
    Path("scores/a.csv").write_text(as_csv(columns(draw(rng, 1500, scale=1.0))))
    assert once("--output", "page.html") == 3
    printed = capsys.readouterr().out
    assert "ALARM" in printed
    assert "predictions are less sure" in printed
    assert "label new examples" in printed
    shown = Path("page.html").read_text()
    assert "Alarm: " in shown
    assert "predictions are less sure" in shown
    Path("scores/a.csv").write_text(as_csv(columns(draw(rng, 1500, scale=9.0))))
    assert once() == 3
    assert "predictions are surer" in capsys.readouterr().out


def test_the_time_axis_shows_time_and_the_dashed_line_has_a_name(place: Path, rng) -> None:
    table = columns(draw(rng, 100))
    table["time"] = np.datetime64("2030-01-31T12:00") + np.arange(100).astype("timedelta64[h]")
    Path("scores/a.csv").write_text(as_csv(table))
    assert once("--output", "page.html") == 0
    text = Path("page.html").read_text()
    assert "2030-01-31" in text
    assert "2030-02-04" in text
    assert "held-out accuracy" in text
    for times in ("1e300", "-1", "nan"):
        Path("scores/a.csv").write_text(f"uncertainty,time\n0.1,{times}\n0.2,5\n")
        assert once("--output", "page.html") == 0  # such times are unknown
    Path("scores/a.csv").write_text("uncertainty,time\n0.1,soon\n")
    assert once() == 1


def test_labels_may_come_later_and_in_part(place: Path, rng) -> None:
    Path("scores/a.csv").write_text("uncertainty,predicted,label\n0.1,0,0\n0.2,1,\n0.3,1,0\n")
    assert once("--output", "m.prom") == 0
    found = measured(Path("m.prom").read_text())
    assert (found["qipf_labelled_total"], found["qipf_labelled_accuracy"]) == (2, 0.5)
    Path("scores/a.csv").write_text("uncertainty,correct\n0.1,true\n0.2,\n0.3,false\n")
    assert once("--output", "m.prom") == 0
    assert measured(Path("m.prom").read_text())["qipf_labelled_accuracy"] == 0.5


def test_the_least_sure_images_are_on_the_page(place: Path) -> None:
    from PIL import Image

    Image.new("L", (30, 30), 128).save("dark.png")
    Path("scores/a.csv").write_text("uncertainty,file\n0.1,no.png\n0.9,dark.png\n")
    assert once("--output", "page.html") == 0
    text = Path("page.html").read_text()
    assert text.count("data:image/png;base64,") == 1
    assert "dark.png (0.9)" in text


def test_only_images_of_this_folder_are_shown(place: Path, tmp_path_factory) -> None:
    from PIL import Image

    other = tmp_path_factory.mktemp("other")
    Image.new("L", (30, 30), 128).save(other / "secret.png")
    Path("link.png").symlink_to(other / "secret.png")
    names = [str(other / "secret.png"), "link.png", "x" * 300 + ".png", "a\0b.png"]
    Path("scores/a.csv").write_text("uncertainty,file\n" + "".join(f"0.9,{name}\n" for name in names))
    assert once("--output", "page.html") == 0
    assert "data:image" not in Path("page.html").read_text()


def test_what_is_read_is_not_overwritten(place: Path, capsys) -> None:
    Path("scores/a.csv").write_text("uncertainty\n0.1\n")
    Path("net.html").symlink_to("net.qipf")
    Path("page.html").symlink_to("scores/a.csv")
    for file in ("net.html", "page.html"):
        assert once("--output", file) == 2
        assert "would be overwritten" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (["nowhere", "--reference", "net.qipf"], "nowhere", 1),
        (["net.qipf", "--reference", "net.qipf"], ".csv", 1),
        (["scores", "--reference", "bare.qipf"], "--calibrate", 1),
        (["scores", "--reference", "numbers.qipf"], "regression", 1),
        (["scores", "--reference", "net.qipf", "--every", "0"], "--every", 2),
        (["scores", "--reference", "net.qipf", "--port", "99999"], "--port", 2),
        (["bad", "--reference", "net.qipf"], "bad/b.csv: expected a column 'uncertainty'", 1),
        (["nan", "--reference", "net.qipf"], "nan/b.csv: uncertainty: expected finite values, got NaN", 1),
        (
            ["word", "--reference", "net.qipf"],
            "word/b.csv: one of the columns 'label'",
            1,
        ),
    ],
)
def test_errors_are_one_line(place: Path, capsys, words, message, code) -> None:
    qipf.Entropy().save("bare.qipf")
    targets = np.arange(40.0)[:, None]
    numbers = qipf.Outputs(targets, features=targets % 7, labels=(targets + targets % 3)[:, 0])
    scale = qipf.ResidualScale().fit(None, numbers)
    scale.attach(qipf.Intervals().fit_scorer(scale, numbers))
    scale.save("numbers.qipf")
    texts = {
        "bad": "score\n1.0\n",
        "nan": "uncertainty\n0.1\nnan\n",
        "word": "uncertainty,predicted,label\n0.1,1,cat\n",
    }
    for name, text in texts.items():
        Path(name).mkdir()
        Path(name, "a.csv").write_text("uncertainty\n0.1\n")
        Path(name, "b.csv").write_text(text)
    assert main(["watch", *words, "--once"]) == code
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error


def test_pictures_are_opened_by_the_decoder_that_their_ending_names(place: Path, monkeypatch) -> None:
    from PIL import EpsImagePlugin, Image

    def refuse(*_, **__):
        raise AssertionError("a program was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", refuse)
    head = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    for name in ("program.png", "program.eps"):
        Path(name).write_bytes(head)
    Image.new("L", (20_000, 20_000)).save("huge.png")
    Image.new("L", (30, 30), 128).save("dark.png")
    Path("scores/a.csv").write_text("uncertainty,file\n0.9,program.png\n0.8,program.eps\n0.7,huge.png\n0.6,dark.png\n")
    assert once("--output", "page.html") == 0
    assert Path("page.html").read_text().count("data:image/png;base64,") == 1


def test_without_rows_nothing_is_said_about_a_change(place: Path, capsys) -> None:
    Path("scores/a.csv").write_text("uncertainty\n")
    assert once() == 0
    assert capsys.readouterr().out.endswith("No predictions yet.\n")


def test_a_first_line_without_an_end_is_refused(place: Path, capsys) -> None:
    Path("scores/a.csv").write_bytes(b"u" * (CHUNK + 1))
    assert once() == 1
    assert "the first line is longer" in capsys.readouterr().err


def test_rows_of_a_file_that_grows_are_counted_from_its_beginning(place: Path, rng) -> None:
    from qipf.cli.watch import _Watched

    found = qipf.load("net.qipf").attachments["monitor"]
    assert isinstance(found, qipf.Monitor)
    watched = _Watched(found.empty(), "", Tail(Path("scores")), "scores", 0)
    Path("scores/a.csv").write_text("uncertainty\n0.1\n0.2\n")
    assert watched.look()
    with Path("scores/a.csv").open("a") as file:
        file.write("0.3\nnan\n")
    with pytest.raises(qipf._common.errors.InputError, match="row 2 of the file"):
        watched.look()


def test_the_table_of_another_scorer_is_refused(place: Path, rng, capsys) -> None:
    live = draw(rng, 100)
    np.savez("live.npz", logits=live.logits, labels=live.labels)
    qipf.Energy().fit().save("other.qipf")
    for scorer, code in (("net.qipf", 0), ("other.qipf", 1)):
        assert main(["score", scorer, "live.npz", "--output", "scores/a.csv", "--quiet"]) == 0
        assert once() == code
    assert "energy" in capsys.readouterr().err
