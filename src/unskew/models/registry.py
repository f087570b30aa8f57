"""The table of networks, and how to make one from its spelling."""

import torch
from torch import nn

from unskew.errors import UnskewError
from unskew.models.bilstm import BiLSTM
from unskew.models.densenet import DenseNet121
from unskew.models.feddisk_cnn import FedDiskCNN
from unskew.models.lenet import LeNet5
from unskew.models.made import MADESpec
from unskew.models.mlp import MLP, Logistic
from unskew.models.mobilenet import MobileNetV2
from unskew.models.resnet import ResNet18, ResNet34
from unskew.models.spec import ModelSpec
from unskew.models.vae import VAESpec
from unskew.models.vgg import Vgg11
from unskew.utils import specs
from unskew.utils.rng import torch_seeded

MODELS: dict[str, type[ModelSpec]] = {
    "logistic": Logistic,
    "mlp": MLP,
    "lenet5": LeNet5,
    "feddisk-cnn": FedDiskCNN,
    "vgg11": Vgg11,
    "resnet18": ResNet18,
    "resnet34": ResNet34,
    "densenet121": DenseNet121,
    "mobilenetv2": MobileNetV2,
    "bilstm": BiLSTM,
    "made": MADESpec,
    "vae": VAESpec,
}
"""Every network by name; ``summary``, ``takes`` and ``aim`` of each describe it in one line."""


def make(
    spec: str,
    shape: tuple[int, ...],
    classes: int,
    *,
    seed: int = 0,
    vocabulary: int | None = None,
) -> nn.Module:
    """Build the network a spelling such as ``resnet18:norm=group`` names.

    ``shape`` is that of one sample; ``vocabulary`` the number of tokens where samples are text.
    The same seed gives the same bits, and torch's global generator is left as it was.
    """
    recipe = specs.build(MODELS, spec, "model")
    _check(recipe, f"model {specs.parse(spec)[0]!r}", shape, vocabulary)
    if classes < 1:
        raise UnskewError(f"classes must be at least 1 (got {classes})")
    with torch_seeded(seed, "model"), torch.device("cpu"):
        return recipe.build(shape, classes, vocabulary)


def default_for(shape: tuple[int, ...], classes: int, vocabulary: int | None = None) -> str:
    """Name a network that suits the samples and trains in reasonable time on a CPU.

    ResNet-18 is worth its cost only for large images, and for colour images of many classes.
    """
    if vocabulary is not None:
        return "bilstm"
    if len(shape) != 3 or min(shape[1:]) < 16:
        return "mlp"
    large = max(shape[1:]) > 64
    return "resnet18" if large or (shape[0] > 1 and classes > 10) else "lenet5"


def _check(recipe: ModelSpec, label: str, shape: tuple[int, ...], vocabulary: int | None) -> None:
    """Complain about samples the network cannot take."""
    if (recipe.takes == "text") != (vocabulary is not None):
        advice = "use bilstm" if recipe.aim == "classes" else f"there is no {recipe.aim} of tokens"
        given = "numbers; use one for numbers" if vocabulary is None else f"text; {advice}"
        needs = "text (tokens and a vocabulary)" if vocabulary is None else "numbers"
        raise UnskewError(f"{label} takes {needs} and the samples are {given}")
    if recipe.takes != "image":
        return
    if len(shape) != 3:
        raise UnskewError(
            f"{label} takes images (channels, height, width) and the samples have shape {shape}; "
            "use mlp or logistic"
        )
    least = recipe.smallest()
    if min(shape[1:]) < least:
        raise UnskewError(
            f"{label} takes images of at least {least}x{least} and the samples are "
            f"{shape[1]}x{shape[2]}; use {default_for(shape, 2)} or larger images"
        )
