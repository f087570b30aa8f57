"""The colours and dashes of methods: the same in every picture, on the page and on paper."""

# Okabe and Ito's colours without yellow, which people with any colour vision tell apart. The page's
# style sheet has the same ones, and lighter ones of the same hues for dark screens.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
DASHES = ("-", "--", ":", "-.")


def color(place: int) -> str:
    """Return the colour of the method at a place in the list of methods."""
    return COLORS[place % len(COLORS)]


def dash(place: int) -> str:
    """Return the dashes of that method's lines, which tell methods of one colour apart."""
    return DASHES[place // len(COLORS) % len(DASHES)]
