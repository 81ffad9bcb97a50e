"""The one exception, and the one warning, that a person is meant to read."""


class InputError(ValueError):
    """Something given to lookright cannot be used; the message says what, where, and what to do.

    The command line prints the message alone and ends with exit code 2.
    """


class EvidenceWarning(UserWarning):
    """Evidence can be used, but something in it bends the figures; the message says what."""


def shown(text: str, limit: int = 120) -> str:
    """What was given, as messages show it: not endless, and nothing in it that a terminal obeys."""
    start = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:limit])
    return start if len(text) <= limit else f"{start}... ({len(text):,} characters)"
