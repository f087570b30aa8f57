"""The distance of a client's samples from the prior, in the latent space of a common VAE."""

import numpy as np
import torch
from torch import Tensor

from unskew.densities.wasserstein import distance_to_normal
from unskew.models.functional import FunctionalModel
from unskew.models.vae import draw_codes
from unskew.utils.rng import stream, uniforms


def has_codes(module: object) -> bool:
    """Return whether a network encodes samples as normal distributions."""
    return hasattr(module, "encode") and hasattr(module, "decode")


@torch.no_grad()
def codes(
    network: FunctionalModel,
    vector: Tensor,
    x: Tensor,
    client: int,
    seed: int,
    codes_per_sample: int,
) -> Tensor:
    """Draw ``codes_per_sample`` codes of each sample, as rows."""
    trainable = network.layout.trainable
    buffers = network.buffers_of(vector[trainable:])
    mean, log_variance = network.run(vector[:trainable], buffers, network.inputs(x), call="encode")
    numbers = uniforms(
        stream(seed, "codes"), np.array([client]), 0, codes_per_sample * len(x), mean.shape[-1]
    )
    noise = torch.from_numpy(numbers[0])
    return draw_codes(
        mean.repeat(codes_per_sample, 1), log_variance.repeat(codes_per_sample, 1), noise
    )


def distance_to_prior(
    network: FunctionalModel,
    vector: Tensor,
    x: Tensor,
    client: int,
    seed: int,
    codes_per_sample: int = 1,
) -> float:
    """Return the mean over dimensions of W1 between drawn codes and N(0, 1).

    Codes are drawn, since their means alone would make a dimension that the encoder does not use
    look distant: there all means are 0, while the codes follow the prior.
    """
    drawn = codes(network, vector, x, client, seed, codes_per_sample)
    return float(distance_to_normal(drawn.numpy()).mean())
