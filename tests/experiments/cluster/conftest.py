"""Clusters on this machine: Ray, Dask and Slurm, each with two workers of one core."""

import getpass
import os
import secrets
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from processes import SRC, free_port, wait_until

SLURM_CONF = """
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=10
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={daemon}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1
ReturnToService=2
KillWait=5
MinJobAge=10
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=loopback Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def process(*command, log, **env):
    """Run a program until the block ends; its output is in a log."""
    path = os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])
    with log.open("ab") as file:
        started = subprocess.Popen(
            list(map(str, command)), stdout=file, stderr=file,
            env={**os.environ, "PYTHONPATH": path, **env},
        )  # fmt: skip
        try:
            yield started
        finally:
            started.terminate()
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()


def answers(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="session")
def dask_cluster(tmp_path_factory):
    pytest.importorskip("distributed")
    folder, port = tmp_path_factory.mktemp("dask"), free_port()
    dask, address = [sys.executable, "-m", "dask"], f"tcp://127.0.0.1:{port}"
    options = ["--no-dashboard", "--local-directory", folder, "--nthreads", 1]
    with ExitStack() as stack:
        scheduler = [*dask, "scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"]
        stack.enter_context(process(*scheduler, log=folder / "scheduler.log"))
        wait_until(lambda: answers(port), "the Dask scheduler")
        for number in range(2):
            log = folder / f"worker{number}.log"
            stack.enter_context(process(*dask, "worker", address, *options, log=log))
        yield f"dask:{address}"


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory):
    pytest.importorskip("ray")
    # Sockets below this folder have names of at most 107 characters.
    folder, port = Path(f"/tmp/ray-{secrets.token_hex(3)}"), free_port()
    logs = tmp_path_factory.mktemp("ray")
    ray = [Path(sys.executable).with_name("ray"), "start", "--block", "--num-cpus", 1]
    ray += ["--object-store-memory", 10**8, "--disable-usage-stats"]
    ray += ["--node-ip-address", "127.0.0.1"]
    head = [*ray, "--head", "--port", port, "--include-dashboard", "false", "--temp-dir", folder]
    worker = [*ray, "--address", f"127.0.0.1:{port}"]
    # A node registers when its agents have been imported. On a busy machine that takes longer than
    # the 30 s that Ray allows by default, after which the node stops.
    seconds = 300
    env = {"RAY_raylet_start_wait_time_s": str(seconds)}

    def has_started(node, log):
        assert node.poll() is None, log.read_text()
        return "Ray runtime started" in log.read_text()

    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        nodes = []
        for command, log in ((head, logs / "head.log"), (worker, logs / "worker.log")):
            nodes.append((stack.enter_context(process(*command, log=log, **env)), log))
            wait_until(lambda: answers(port), "the head of Ray", seconds)
        for node, log in nodes:
            wait_until(lambda node=node, log=log: has_started(node, log), "a node of Ray", seconds)
        yield f"ray:127.0.0.1:{port}"


@pytest.fixture(scope="session")
def slurm_cluster(tmp_path_factory):
    pytest.importorskip("submitit")
    missing = [name for name in ("munged", "slurmctld", "slurmd") if not shutil.which(name)]
    if missing:
        pytest.skip(f"Slurm is not installed ({', '.join(missing)}): make slurm")
    folder = Path(f"/tmp/slurm-{secrets.token_hex(3)}")  # for sockets, as above
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    host = socket.gethostname().partition(".")[0]
    names = {"host": host, "user": getpass.getuser(), "folder": folder}
    configuration = folder / "slurm.conf"
    # A requeued job waits until its credential has expired: cred_expire, by default 120 s.
    configuration.write_text(SLURM_CONF.format(**names, controller=free_port(), daemon=free_port()))
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    env = {"SLURM_CONF": str(configuration)}

    def is_idle():
        sinfo = ["sinfo", "--noheader", "--format=%T"]
        found = subprocess.run(sinfo, env={**os.environ, **env}, capture_output=True, check=False)
        return found.stdout.strip() == b"idle"

    munged = ["munged", "--foreground", "--force", f"--key-file={key}"]
    munged += [f"--{name}-file={folder}/munged.{name}" for name in ("pid", "seed", "log")]
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.enter_context(
            process(*munged, f"--socket={folder}/munge.socket", log=folder / "munged.out")
        )
        wait_until((folder / "munge.socket").exists, "munged")
        stack.enter_context(process("slurmctld", "-D", log=folder / "slurmctld.log", **env))
        daemon = ["slurmd", "-D", "-N", host]
        stack.enter_context(process(*daemon, log=folder / "slurmd.log", **env))
        wait_until(is_idle, "Slurm")
        patch.setenv("SLURM_CONF", str(configuration))
        yield "slurm:partition=loopback,time=10,pack=9"
