"""Text from elsewhere, made safe to show in a terminal."""


def printable(text: str) -> str:
    r"""Return *text* with everything that a terminal could take as a command written out, such as ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
