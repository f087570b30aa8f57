"""The colours and dashes of methods, the same in every chart, on the page and on paper."""

# Okabe and Ito's colours without yellow, which are distinguishable with any colour vision. The
# page's style sheet has the same colours, and lighter ones of the same hues for dark screens.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
DASHES = ("-", "--", ":", "-.")


def color(index: int) -> str:
    """Return the colour of the method at an index in the list of methods."""
    return COLORS[index % len(COLORS)]


def dash(index: int) -> str:
    """Return the dashes of that method's lines, which distinguish methods of the same colour."""
    return DASHES[index // len(COLORS) % len(DASHES)]
