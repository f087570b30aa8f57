"""How far a client's samples lie from the prior, in the codes of a common VAE."""

import numpy as np
import torch
from torch import Tensor

from unskew.densities.wasserstein import distance_to_normal
from unskew.models.functional import Network
from unskew.models.vae import draw_codes
from unskew.utils.rng import stream, uniforms


def has_codes(module: object) -> bool:
    """Tell whether a network encodes samples as normal distributions."""
    return hasattr(module, "encode") and hasattr(module, "decode")


@torch.no_grad()
def codes(
    network: Network, vector: Tensor, x: Tensor, client: int, seed: int, draws: int
) -> Tensor:
    """Draw so many codes of each sample, one below the other."""
    trainable = network.layout.trainable
    buffers = network.buffers_of(vector[trainable:])
    mean, log_variance = network.run(vector[:trainable], buffers, network.inputs(x), call="encode")
    numbers = uniforms(stream(seed, "codes"), np.array([client]), 0, draws * len(x), mean.shape[-1])
    chance = torch.from_numpy(numbers[0])
    return draw_codes(mean.repeat(draws, 1), log_variance.repeat(draws, 1), chance)


def distance_to_prior(
    network: Network, vector: Tensor, x: Tensor, client: int, seed: int, draws: int = 1
) -> float:
    """Return the mean over dimensions of W1 between drawn codes and N(0, 1).

    Drawn, because means alone would call a dimension far that the encoder leaves unused: they are
    all 0 there, while its codes follow the prior.
    """
    drawn = codes(network, vector, x, client, seed, draws)
    return float(distance_to_normal(drawn.numpy()).mean())
