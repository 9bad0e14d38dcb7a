"""The failures a user can do something about, and what they exit with."""


class UserError(Exception):
    """The command line is wrong. It is shown on standard error as it is, without a traceback."""

    exit_code = 2


class InputError(UserError):
    """The command line is right, but a file or folder that it names is missing, damaged or does not fit."""

    exit_code = 1


def check_at_least(option: str, value: int | None, least: int) -> None:
    """Raise UserError where a number that was given is too small."""
    if value is not None and value < least:
        raise UserError(f"{option}: expected at least {least}, got {value}")
