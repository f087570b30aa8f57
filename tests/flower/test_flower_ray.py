"""Flower's simulation on Ray gives the same bits as the plain loop."""

import pytest
import torch

import unskew as us
from toys import small_federation
from unskew.errors import UnskewError

grids = pytest.importorskip("grids")
pytestmark = [pytest.mark.extras("ray"), pytest.mark.filterwarnings("ignore")]

OPTIONS = {"model": grids.MODEL, "lr": 0.1, "batch_size": 8, "seed": 2}


@pytest.mark.parametrize("method", ["scaffold", "fedprox:mu=0.1+ida", "data-sharing"])
def test_a_run_on_ray_is_the_same_and_can_be_resumed(method, tmp_path):
    federation = small_federation(unit=True)
    for rounds in (1, 3):
        run = us.train(
            federation,
            method,
            engine="flower-ray",
            rounds=rounds,
            out=tmp_path / "run",
            resume=True,
            progress=False,
            **OPTIONS,
        )
    simulated = us.train(federation, method, runner="loop", rounds=3, progress=False, **OPTIONS)
    assert torch.equal(grids.vector_of(run.model), grids.vector_of(simulated.model))
    assert run.last("personal") == pytest.approx(simulated.last("personal"), abs=1e-6)


def test_a_method_that_trains_in_one_place_is_rejected():
    with pytest.raises(UnskewError, match="trains in one place"):
        us.train(small_federation(), "central", engine="flower-ray", rounds=1, **OPTIONS)
