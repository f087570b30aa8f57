# mypy: ignore-errors
"""Rounds of fedjax: its FedAvg with each of its backends.

Differences from unskew's work:

- There is no ResNet-18 of haiku here, so W4 is left out.
- fedjax has no state besides parameters, so BatchNorm (W3) normalises by the batch alone and
  keeps no running statistics, which is less work.
- Its FedAvg also computes the norm of every client's update.
- Images are in the order N, H, W, C, which is the fastest one for XLA on a CPU.
- The debugging backend compiles nothing and is slower by orders of magnitude; it runs one round.

fedjax 0.0.17 calls functions that later releases of jax removed. They are defined here by their
documented replacements, and the axis of devices that pmap keeps in its outputs is removed.
"""

import os
import time

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg
from fedjax.core.for_each_client import ForEachClientPmapBackend
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.peers.layouts import CHOSEN, Layout, main

DEVICES = os.cpu_count()
WARM_UP = 3
DEBUG_ROUNDS = 1

LAYOUTS = {
    "jit": Layout(),
    "jit, one thread": Layout({"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}),
    "pmap": Layout({"XLA_FLAGS": f"--xla_force_host_platform_device_count={DEVICES}"}),
    "debug": Layout(),
}


def _one_per_device(devices):
    return NamedSharding(Mesh(np.array(devices), ("device",)), PartitionSpec("device"))


def _put_sharded(shards, devices):
    stacked = jax.tree_util.tree_map(lambda *leaves: np.stack(leaves), *shards)
    return jax.device_put(stacked, _one_per_device(devices))


def _put_replicated(tree, devices):
    return _put_sharded([tree] * len(devices), devices)


class Pmap(ForEachClientPmapBackend):
    """fedjax's backend, with the axis of devices removed from its outputs."""

    def __call__(self, client_init, client_step, client_final):
        run = super().__call__(client_init, client_step, client_final)

        def reduced(shared, clients):
            for client, output, steps in run(shared, clients):
                yield client, jax.tree_util.tree_map(lambda leaf: leaf[0], output), steps

        return reduced


def restore_dropped_functions():
    """Define the functions that fedjax calls and jax has removed."""
    jax.tree_map = jax.tree_util.tree_map
    jax.device_put_sharded = _put_sharded
    jax.device_put_replicated = _put_replicated


def _halved(x):
    return jax.nn.relu(hk.max_pool(x, (2, 2, 1), (2, 2, 1), "VALID"))


class BatchStatistics(hk.Module):
    """BatchNorm in training: by the batch's mean and variance, then scaled and shifted."""

    def __call__(self, x):
        scale = hk.get_parameter("scale", x.shape[-1:], init=jnp.ones)
        shift = hk.get_parameter("shift", x.shape[-1:], init=jnp.zeros)
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def mlp(x):
    """Compute the network of W1."""
    return hk.nets.MLP([32, 10])(x)


def lenet5(x):
    """Compute the network of W2."""
    x = _halved(hk.Conv2D(6, 5, padding=[(2, 2), (2, 2)])(x))
    x = _halved(hk.Conv2D(16, 5, padding="VALID")(x))
    return hk.nets.MLP([120, 84, 10])(hk.Flatten()(x))


def feddisk_cnn(x):
    """Compute the network of W3."""
    for _ in range(2):
        x = BatchStatistics()(_halved(hk.Conv2D(16, 5, padding=[(2, 2), (2, 2)])(x)))
    return hk.nets.MLP([16, 10])(hk.Flatten()(x))


NETWORKS = {"mlp": mlp, "lenet5": lenet5, "feddisk-cnn": feddisk_cnn}


def build(work, samples):
    """Build the network of a workload, with its loss."""
    network = NETWORKS[work.model.split(":")[0]]
    return fedjax.create_model_from_haiku(
        hk.transform(lambda batch: network(batch["x"])),
        {name: column[: work.batch] for name, column in samples.items()},
        lambda batch, logits: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits),
    )


def federation(work):
    """Return all samples, and the same samples by client."""
    x, y = work.data()
    if x.ndim == 4:
        x = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    samples = {"x": x, "y": y.astype(np.int32)}
    rows = [slice(k * work.samples, (k + 1) * work.samples) for k in range(work.clients)]
    clients = {
        b"%05d" % k: {name: column[part] for name, column in samples.items()}
        for k, part in enumerate(rows)
    }
    return samples, fedjax.InMemoryFederatedData(clients)


def time_rounds(work, rounds):
    """Time rounds, from the sampling of clients until the new parameters are computed."""
    restore_dropped_functions()
    layout = os.environ[CHOSEN]
    backend = layout.split(",")[0]
    fedjax.set_for_each_client_backend(Pmap() if backend == "pmap" else backend)
    samples, clients = federation(work)
    model = build(work, samples)
    algorithm = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        fedjax.optimizers.sgd(work.lr),
        fedjax.optimizers.sgd(1.0),
        fedjax.ShuffleRepeatBatchHParams(batch_size=work.batch),
    )
    sampler = fedjax.client_samplers.UniformGetClientSampler(clients, work.cohort, seed=0)
    state = algorithm.init(model.init(jax.random.PRNGKey(0)))
    warm_up, rounds = (0, min(rounds, DEBUG_ROUNDS)) if backend == "debug" else (WARM_UP, rounds)
    seconds = []
    for _ in range(warm_up + rounds):
        started = time.perf_counter()
        state, _ = algorithm.apply(state, sampler.sample())
        jax.block_until_ready(state.params)
        seconds.append(time.perf_counter() - started)
    return {layout: seconds[warm_up:]}


if __name__ == "__main__":
    main("benchmarks.peers.fedjax_jit", LAYOUTS, time_rounds)
