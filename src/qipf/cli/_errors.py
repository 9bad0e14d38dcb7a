"""The failures a user can do something about."""


class UserError(Exception):
    """Shown on standard error as it is, without a traceback; exit code 2."""
