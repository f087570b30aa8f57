"""Errors of custom methods that end a worker or return something of the wrong type."""

import os

import pytest
from pydantic.dataclasses import dataclass

import unskew as us
from unskew.errors import UnskewError
from unskew.methods import ClientSide, ServerSide
from unskew.utils.specs import OPTIONS

PARENT = os.getpid()


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class EndsItsProcess(ClientSide):
    def prepare(self, client, start, payload, state):
        if os.getpid() != PARENT:
            os._exit(3)
        return start


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class ReturnsOnlyTheServer(ServerSide):
    def conclude(self, before, after, uploads, diagnostics):
        return after


def test_a_worker_that_dies_is_reported_with_its_client(federation):
    with pytest.raises(UnskewError, match=r"worker process ended \(exit code 3\) while training"):
        us.train(federation, EndsItsProcess(), rounds=1, runner="processes", workers=2)


def test_conclude_must_return_server_and_diagnostics(federation):
    with pytest.raises(UnskewError, match="returned Server, and must return a Server and a dict"):
        us.train(federation, ReturnsOnlyTheServer(), rounds=1, runner="loop")
