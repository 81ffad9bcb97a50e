"""The one exception, and the one warning, that a person is meant to read."""


class InputError(ValueError):
    """Something given to lookright cannot be used; the message says what, where, and what to do.

    The command line prints the message alone and ends with exit code 2.
    """


class EvidenceWarning(UserWarning):
    """Evidence can be used, but something in it bends the figures; the message says what."""


def shown(text: str, limit: int = 120) -> str:
    """What was given, as messages show it: not endless, and nothing in it that a terminal obeys."""
    start = _printable(text[:limit])
    return start if len(text) <= limit else f"{start}... ({len(text):,} characters)"


def told(message: object) -> str:
    """A message as a person is told it: one line, of one too long the start and the end.

    Paths, and what other libraries say, come into messages as they are.
    """
    text = _printable(str(message))
    return text if len(text) <= 900 else f"{text[:600]} ... {text[-250:]}"


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def reason(error: BaseException) -> str:
    """The first line of what another library says went wrong, or the kind of its error."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
