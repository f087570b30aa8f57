"""The figure that charts are drawn on; importing it imports matplotlib, which is slow."""

import io
from typing import Any

from matplotlib import figure, rc_context
from matplotlib.text import Text

_NOTEBOOK_DPI = 110


class Figure(figure.Figure):
    """A matplotlib figure that notebooks show as an image, whether or not pyplot is imported.

    Its texts are names, such as ``$5_$`` of a class, so none is read as a formula.
    """

    def draw(self, renderer: Any) -> None:
        """Draw the figure; ticks, which are made while drawing, have plain texts too."""
        with rc_context({"text.parse_math": False}):
            for text in self.findobj(Text):
                text.set_parse_math(False)
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        self.savefig(image, format="png", dpi=_NOTEBOOK_DPI)
        return image.getvalue()
