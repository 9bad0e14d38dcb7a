"""What an installed qipf[torch] must do: fit, score, decide, wrap, save, and answer on the command line.

Run by itself, outside of the checkout, in an environment into which the wheel or the sdist was installed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import qipf
from qipf import training
from qipf.study import datasets, nets


def main() -> None:
    """Raise where something is missing; print the version where all is well."""
    digits = datasets.load("digits")
    x, y = digits.test.inputs, digits.test.targets
    model = training.train(nets.build("small-cnn", seed=0), digits.train, epochs=5, progress=False)
    uq = qipf.default(model, digits.train, effort="quick", progress=False)
    held_out = qipf.collect(model, (x[:400], y[:400]), layers=uq.layers, progress=False)
    uq.decision = qipf.Decision("accept>=0.9").fit_scorer(uq, held_out)
    accept = qipf.wrap(model.eval(), uq)(x[400:]).accept
    assert 0.7 < float(accept.float().mean()) <= 1, accept
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "digits.qipf"
        uq.save(file)
        assert (qipf.load(file)(held_out) == uq(held_out)).all()
        command = [sys.executable, "-m", "qipf", "inspect", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "probe" in done.stdout
    print(f"qipf {version('qipf')} works")


if __name__ == "__main__":
    main()
