"""What the repr of an object shows."""


def shows_address(text: str) -> bool:
    """Return whether a repr contains a memory address, as Python's default one does.

    Such a repr differs between processes and does not describe the object's contents.
    """
    return " at 0x" in text
