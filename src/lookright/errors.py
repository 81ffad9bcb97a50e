"""The one exception a person is meant to read."""


class InputError(ValueError):
    """Something given to lookright cannot be used; the message says what, where, and what to do.

    The command line prints the message alone and ends with exit code 2.
    """
