"""The command line: one file a command, loaded when it is called."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Any

from qipf._optional import require
from qipf.cli._errors import UserError

COMMANDS = {  # name -> where its function lives
    "bench": "qipf.cli.bench:bench",
    "demo": "qipf.cli.demo:demo",
    "evaluate": "qipf.cli.evaluate:evaluate",
    "fit": "qipf.cli.fit:fit",
    "gallery": "qipf.cli.gallery:gallery",
    "inspect": "qipf.cli.inspect:inspect",
    "report": "qipf.cli.report:report",
    "score": "qipf.cli.score:score",
    "train": "qipf.cli.train:train",
}


def build() -> Any:
    """The cyclopts application with every command registered but none imported."""
    cyclopts = require("cyclopts", extra="bench")
    app = cyclopts.App(
        name="qipf",
        version=version("qipf"),
        help="How far can each prediction of a trained neural network be trusted?",
        help_epilogue="--debug shows the traceback of an error. Exit codes: 0 done, 1 failed, 2 wrong use.",
    )
    for name, place in COMMANDS.items():
        app.command(place, name=name)
    app.register_install_completion_command()
    return app


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; errors go to standard error in one line unless --debug is given."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        result = build()([word for word in given if word != "--debug"], result_action="return_value")
    except UserError as error:
        return _fail(error, debug, code=2)
    except (ValueError, TypeError, OSError, ImportError) as error:
        return _fail(error, debug, code=1)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return result if isinstance(result, int) else 0


def _fail(error: Exception, debug: bool, code: int) -> int:
    if debug:
        raise error
    print(f"qipf: {error}", file=sys.stderr)
    return code
