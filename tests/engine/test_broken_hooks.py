"""Errors of custom methods that end a worker or return something of the wrong type."""

import os

import pytest
from pydantic.dataclasses import dataclass

import unskew as us
from unskew.errors import UnskewError
from unskew.methods.common.base import Method
from unskew.utils.specs import OPTIONS

PARENT = os.getpid()


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class EndsItsProcess(Method):
    def prepare(self, client, payload, state):
        if os.getpid() != PARENT:
            os._exit(3)
        return super().prepare(client, payload, state)


@dataclass(frozen=True, config=OPTIONS, kw_only=True)
class ReturnsOnlyTheServer(Method):
    def aggregate(self, server, uploads):
        return super().aggregate(server, uploads)[0]


def test_a_worker_that_dies_is_reported_with_its_client(federation):
    with pytest.raises(UnskewError, match=r"worker process ended \(exit code 3\) while training"):
        us.train(federation, EndsItsProcess(), rounds=1, runner="pool", workers=2)


def test_aggregate_must_return_server_and_diagnostics(federation):
    with pytest.raises(UnskewError, match="must return a Server and a dict of diagnostics"):
        us.train(federation, ReturnsOnlyTheServer(), rounds=1, runner="loop")
