"""Names of files and folders that are made of what somebody else sent or wrote.

Run ids, names of nodes, specs of methods and titles from files may hold anything. Each becomes one
part of a path by :func:`path_name`; nothing else that comes from outside is used in a path.
"""

import hashlib
import re
from urllib.parse import quote

_PLAIN = re.compile(r"[A-Za-z0-9_%~=+][A-Za-z0-9_%~=+.-]{0,99}")
_DEVICES = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
"""Names that Windows reserves, with any extension."""


def path_name(text: str) -> str:
    """Return a text as the name of one file or folder; two texts never have the same name.

    Letters, digits and ``_~=+.-`` stay; other characters become ``%`` and their bytes. What is
    empty, long, begins with a dot or a hyphen, ends with a dot, or is reserved by a system becomes
    a hash.
    """
    raw = text.encode("utf-8", "surrogatepass")
    name = quote(raw, safe="=+")
    if _PLAIN.fullmatch(name) and not name.endswith(".") and not _DEVICES.fullmatch(name):
        return name
    # No quoted text has a hyphen after a percent sign.
    return f"%-{hashlib.sha256(raw).hexdigest()[:40]}"
