"""Names that lead out of a folder, or that some system cannot store."""

HOSTILE = (
    "", ".", "..", "../victim", "../../x", "a/../../b", "/etc/passwd", "~", "~root/x", "C:\\x",
    "\\\\server\\share", "a\0b", "\0", "line\nbreak", "\r", "CON", "nul", "nul.txt", "COM1.tar.gz",
    "lpt9 ", "ends.", "ends ", ".hidden", "-rf", "a" * 300, "../" * 100, "\uff0e\uff0e\uff0fx",
    "\u2024\u2024\u2215x", "\u2025/x", "\u202etxt.exe", "\u0430dmin", "e\u0301", "\u00e9",
    "\ud800", "\U0001f600" * 60, "%2e%2e%2f", "%-x", "*", "?", "a:b", "|", "<>", "$(id)", "`id`",
)  # fmt: skip
