"""How calls become tasks of Ray; no cluster is started."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from unskew.engine.settings import Settings
from unskew.errors import UnskewError, UnskewWarning
from unskew.experiments.cluster.places import find_place

pytestmark = pytest.mark.extras("ray")


@pytest.mark.parametrize("error", [ConnectionError("no node\nat all"), Exception("no node")])
def test_a_ray_that_does_not_start_is_a_clear_error(error, monkeypatch):
    from unskew.experiments.cluster import ray_cluster  # it needs Ray

    def fail(**_):
        raise error

    monkeypatch.setattr(ray_cluster.ray, "init", fail)
    with pytest.raises(UnskewError, match=r"^on: Ray cannot be reached on this machine: no node$"):
        ray_cluster._connect(None)


class FakeRay:
    """A cluster with some GPUs, which records what tasks reserve."""

    def __init__(self, gpus):
        self.gpus, self.reserved = gpus, []

    def is_initialized(self):
        return True

    def cluster_resources(self):
        return {"CPU": 8.0} | ({"GPU": self.gpus} if self.gpus else {})

    def remote(self, fn):
        return SimpleNamespace(options=lambda **options: self._task(options))

    def _task(self, options):
        self.reserved.append((options["num_cpus"], options["num_gpus"]))
        return SimpleNamespace(remote=lambda *args: SimpleNamespace(future=Future))


@pytest.fixture
def ray_with(monkeypatch):
    from unskew.experiments.cluster import ray_cluster  # it needs Ray

    def ray_with(gpus):
        fake = FakeRay(gpus)
        monkeypatch.setattr(ray_cluster, "ray", fake)
        return fake

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    return ray_with


@pytest.mark.parametrize(("device", "gpus"), [("auto", 1), ("cuda", 1), ("cpu", 0)])
def test_a_run_reserves_the_gpu_that_it_trains_on(ray_with, device, gpus):
    fake = ray_with(4.0)
    settings = [Settings(device=device), Settings(device="cpu", workers=2)]
    find_place("ray", None, settings)(None).submit(dict)
    assert fake.reserved == [(2, gpus)]


def test_runs_that_wait_for_a_gpu_are_warned_of(ray_with):
    ray_with(0)
    with pytest.warns(UnskewWarning, match="on: no machine of this Ray cluster has a GPU now"):
        find_place("ray", None, [Settings(device="cuda")])(None)
    find_place("ray", None, [Settings(device="cpu")])(None)
