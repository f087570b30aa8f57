"""What a worker does with a call, and what it refuses."""

import errno
from concurrent.futures import ThreadPoolExecutor

import pytest

import unskew as us
from unskew.errors import FolderError, UnskewError
from unskew.experiments.cluster import call, versions
from unskew.experiments.cluster.shared_folder import shared_folder_in
from unskew.methods import ServerSide

pytestmark = pytest.mark.usefixtures("hooks_called_once")
OPTIONS = {"model": "logistic", "rounds": 4, "checkpoint_seconds": 0.0, "progress": False}
RECEIVED = []


class LosesAWorker(ServerSide):
    def receive(self, server, uploads):
        RECEIVED.append(server)
        if len(RECEIVED) == 3:
            raise SystemExit
        return super().receive(server, uploads)


class RepeatsLostCalls(ThreadPoolExecutor):
    """Does what Ray, Dask and Slurm do when a worker is lost."""

    def submit(self, fn, *args):
        def call_again():
            try:
                return fn(*args)
            except SystemExit:
                return fn(*args)

        return super().submit(call_again)


@pytest.fixture
def workers():
    RECEIVED.clear()
    with RepeatsLostCalls(1) as pool:
        yield pool


def without_time(run):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.metrics]


def test_a_lost_worker_does_not_lose_a_run_that_was_not_to_be_resumed(
    federation, tmp_path, workers
):
    found = [us.train(federation, LosesAWorker(), on=workers, out=tmp_path / "train", **OPTIONS)]
    assert len(RECEIVED) == 1 + OPTIONS["rounds"]  # one round was repeated
    RECEIVED.clear()
    options = OPTIONS | {"seeds": 1, "resume": False}
    found += us.compare(federation, [LosesAWorker()], on=workers, out=tmp_path / "all", **options)
    assert len(RECEIVED) == 1 + OPTIONS["rounds"]
    whole = us.train(federation, LosesAWorker(), **OPTIONS)
    assert [without_time(each) for each in found] == [without_time(whole)] * 2


def test_an_existing_run_is_refused_before_anything_is_sent(federation, tmp_path, workers):
    out = tmp_path / "run"
    us.train(federation, out=out, **OPTIONS)
    workers.submit = None
    options = OPTIONS | {"rounds": 9}
    with pytest.raises(FolderError, match="there is a run already; resume it with resume=True"):
        us.train(federation, on=workers, out=out, **options)


def test_a_file_system_without_locks_is_refused(federation, tmp_path, monkeypatch, workers):
    def flock(*_):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(FolderError, match=r"^out: .* is on a file system without file locks"):
        us.train(federation, on=workers, out=tmp_path / "run", **OPTIONS)
    assert not any(tmp_path.rglob(".unskew-cluster"))


def test_changed_samples_are_noticed(federation, tmp_path):
    with shared_folder_in(tmp_path) as shared:
        saved = shared.save(federation)
        assert shared.save(federation) == saved
        with pytest.raises(UnskewError, match="its samples were changed"):
            call._federation(shared.command, saved, "another hash")


def test_a_worker_that_does_not_see_the_folder_says_so(federation, tmp_path, monkeypatch):
    monkeypatch.setattr(call.platform, "node", lambda: "node7")
    monkeypatch.setattr(call, "is_seen", lambda folder: False)
    with ThreadPoolExecutor(1) as pool, pytest.raises(FolderError) as caught:
        us.train(federation, on=pool, out=tmp_path / "run", **OPTIONS)
    assert str(caught.value).startswith(f"out: the worker on node7 does not see {tmp_path}")
    assert "storage that all machines share, at the same path" in str(caught.value)


def test_a_folder_that_is_gone_is_not_seen(tmp_path):
    assert not call.is_seen(tmp_path / "shared" / "command")
    (tmp_path / "shared" / "command").mkdir(parents=True)
    assert call.is_seen(tmp_path / "shared" / "command")


def test_a_worker_with_another_version_says_so(federation, tmp_path, monkeypatch):
    here = versions.own_versions()
    monkeypatch.setattr(call, "own_versions", lambda: here | {"PyTorch": "1.0.0"})
    with ThreadPoolExecutor(1) as pool, pytest.raises(UnskewError) as caught:
        us.train(federation, on=pool, out=tmp_path / "run", **OPTIONS)
    host = versions.platform.node()
    assert str(caught.value) == (
        f"on: the worker on {host} has PyTorch {here['PyTorch']}, this command 1.0.0; install the "
        "same version on both"
    )
