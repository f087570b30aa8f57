"""The figure that charts are drawn on; importing it imports matplotlib, which is slow."""

import io

from matplotlib import figure

_NOTEBOOK_DPI = 110


class Figure(figure.Figure):
    """A matplotlib figure that notebooks show as an image, whether or not pyplot is imported."""

    def _repr_png_(self) -> bytes:
        image = io.BytesIO()
        self.savefig(image, format="png", dpi=_NOTEBOOK_DPI)
        return image.getvalue()
