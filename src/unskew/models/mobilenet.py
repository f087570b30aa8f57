"""MobileNetV2 (Sandler et al. 2018) for small images.

The stem and the second stage keep the image's size, where the original halves it, so 32x32 images
end as 4x4. Shortcuts are those of the paper: only between blocks of the same shape.
"""

from typing import ClassVar

from pydantic.dataclasses import dataclass
from torch import nn

from unskew.models.layers import GlobalMean, Residual, conv, initialise, named
from unskew.models.norms import Norm, Normalised, image_norm
from unskew.models.spec import Classifier, Takes
from unskew.utils.specs import OPTIONS

STEM, LAST = 32, 1280
# Per group of blocks: expansion, width, number of blocks, stride of the first block.
BLOCKS = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


@dataclass(frozen=True, config=OPTIONS)
class MobileNetV2(Normalised):
    """Inverted residual blocks: expand, filter each channel separately, project."""

    summary: ClassVar[str] = "MobileNetV2 for 32x32 images"
    takes: ClassVar[Takes] = "image"

    norm: Norm = "batch"

    def build(
        self, shape: tuple[int, ...], classes: int, vocabulary: int | None = None
    ) -> Classifier:
        """Build the network."""
        del vocabulary
        width = STEM
        body = _unit(shape[0], width, 3, self.norm)
        for stage, (expansion, outputs, depth, first) in enumerate(BLOCKS, start=1):
            for block in range(depth):
                stride = first if block == 0 else 1
                name = f"stage{stage}_block{block + 1}"
                body.add_module(name, _inverted(width, outputs, expansion, stride, self.norm))
                width = outputs
        body.add_module("last", _unit(width, LAST, 1, self.norm))
        body.add_module("mean", GlobalMean())
        initialise(body, self.norm)
        return Classifier(body, LAST, classes)


def _unit(
    inputs: int, outputs: int, size: int, norm: Norm, *, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    return named(
        conv=conv(inputs, outputs, size, norm, stride=stride, groups=groups),
        norm=image_norm(norm, outputs),
        relu=nn.ReLU6(),
    )


def _inverted(inputs: int, outputs: int, expansion: int, stride: int, norm: Norm) -> nn.Module:
    wide = inputs * expansion
    branch = nn.Sequential()
    if expansion > 1:
        branch.add_module("widen", _unit(inputs, wide, 1, norm))
    branch.add_module("filter", _unit(wide, wide, 3, norm, stride=stride, groups=wide))
    branch.add_module("narrow", conv(wide, outputs, 1, norm))
    branch.add_module("norm", image_norm(norm, outputs))
    same = stride == 1 and inputs == outputs
    return Residual(branch, nn.Identity()) if same else branch
