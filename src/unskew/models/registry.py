"""The table of networks, and how to build one from its spec string."""

import torch
from torch import nn

from unskew.errors import UnskewError
from unskew.models.bilstm import BiLSTM
from unskew.models.densenet import DenseNet121
from unskew.models.feddisk_cnn import FedDiskCNN
from unskew.models.lenet import LeNet5
from unskew.models.made import MADESpec
from unskew.models.mlp import MLP, Linear, Logistic
from unskew.models.mobilenet import MobileNetV2
from unskew.models.resnet import ResNet18, ResNet34
from unskew.models.spec import ModelSpec
from unskew.models.vae import VAESpec
from unskew.models.vgg import VGG11
from unskew.utils import specs
from unskew.utils.rng import torch_seeded

MODELS: dict[str, type[ModelSpec]] = {
    "logistic": Logistic,
    "linear": Linear,
    "mlp": MLP,
    "lenet5": LeNet5,
    "feddisk-cnn": FedDiskCNN,
    "vgg11": VGG11,
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
    """Build the network that a spec string such as ``resnet18:norm=group`` names.

    ``shape`` is that of one sample, and ``vocabulary`` is the number of tokens if samples are
    text. The same seed gives the same bits; torch's global generator is not changed.
    """
    model = specs.build(MODELS, spec, "model")
    _check(model, f"model {specs.parse(spec)[0]!r}", shape, vocabulary)
    if classes < 1:
        raise UnskewError(f"classes must be at least 1 (got {classes})")
    with torch_seeded(seed, "model"), torch.device("cpu"):
        return model.build(shape, classes, vocabulary)


def default_for(shape: tuple[int, ...], classes: int, vocabulary: int | None = None) -> str:
    """Return the name of a network that suits the samples and trains fast enough on a CPU.

    ResNet-18 is worth its cost only for large images, and for colour images of many classes.
    """
    if vocabulary is not None:
        return "bilstm"
    if len(shape) != 3 or min(shape[1:]) < 16:
        return "mlp"
    large = max(shape[1:]) > 64
    return "resnet18" if large or (shape[0] > 1 and classes > 10) else "lenet5"


def _check(model: ModelSpec, label: str, shape: tuple[int, ...], vocabulary: int | None) -> None:
    """Raise if the network cannot take the samples."""
    if (model.takes == "text") != (vocabulary is not None):
        advice = "use bilstm" if model.aim == "classes" else f"there is no {model.aim} of tokens"
        given = "numbers; use one for numbers" if vocabulary is None else f"text; {advice}"
        needs = "text (tokens and a vocabulary)" if vocabulary is None else "numbers"
        raise UnskewError(f"{label} takes {needs} and the samples are {given}")
    if model.takes != "image":
        return
    if len(shape) != 3:
        raise UnskewError(
            f"{label} takes images (channels, height, width) and the samples have shape {shape}; "
            "use mlp or logistic"
        )
    least = model.min_image_size()
    if min(shape[1:]) < least:
        raise UnskewError(
            f"{label} takes images of at least {least}x{least} and the samples are "
            f"{shape[1]}x{shape[2]}; use {default_for(shape, 2)} or larger images"
        )
