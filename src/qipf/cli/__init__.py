"""The command line: one file a command, loaded when it is called."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from importlib.metadata import version
from typing import Any

from qipf._common.errors import UserError
from qipf._common.optional import require

COMMANDS = ("bench", "compare", "demo", "evaluate", "fit", "gallery", "inspect", "report", "score", "train", "watch")
"""Each is a function of a module of the same name."""


def build(listing: bool = False) -> Any:
    """The cyclopts application with every command registered; imported only for a `listing` of what each is for."""
    cyclopts = require("cyclopts", extra="bench")
    app = cyclopts.App(
        name="qipf",
        version=version("qipf"),
        help="How far can each prediction of a trained neural network be trusted?",
        suppress_keyboard_interrupt=False,
        help_epilogue="--debug shows the traceback of an error. Exit codes: 0 done, 1 something failed (a missing or "
        "damaged file, data that does not fit, a cell of a benchmark), 2 the command line is wrong, 130 interrupted.",
    )
    for name in COMMANDS:
        place = f"qipf.cli.{name}"
        app.command(getattr(import_module(place), name) if listing else f"{place}:{name}", name=name)
    app.register_install_completion_command()
    return app


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; errors go to standard error in one line unless --debug is given."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    try:
        listing = not given or given[0] in ("--help", "-h")
        result = build(listing)([word for word in given if word != "--debug"], result_action="return_value")
    except UserError as error:
        return _fail(error, debug, code=error.exit_code)
    except ModuleNotFoundError as error:
        return _fail(error, debug, code=1, message=f"{error}; pip install 'qipf[report]' brings what the commands need")
    except (ValueError, TypeError, OSError, ImportError) as error:
        return _fail(error, debug, code=1)
    except (RuntimeError, AssertionError, LookupError) as error:  # from torch or the user's model, mostly
        return _fail(error, debug, code=1, message=_unexpected(error))
    except MemoryError as error:
        hint = "the data or a file is too large for this machine; a damaged file may only seem so"
        return _fail(error, debug, code=1, message=f"not enough memory{f' ({error})' if str(error) else ''}: {hint}")
    except KeyboardInterrupt:
        print(
            "interrupted; nothing half-written is left, and qipf bench and train go on where they were", file=sys.stderr
        )
        return 130
    return result if isinstance(result, int) else 0


def _fail(error: Exception, debug: bool, code: int, message: str | None = None) -> int:
    if debug:
        traceback.print_exception(error)
        return code
    print(f"qipf: {error if message is None else message}", file=sys.stderr)
    return code


def _unexpected(error: Exception) -> str:
    """One line for an error whose text says little without its kind."""
    first = (str(error).strip().splitlines() or ["no details"])[0]
    return f"{type(error).__name__}: {first} (--debug shows where)"
