"""The peers that `benchmarks.rounds` times run in the precision and layouts that it asks for."""

import json
from types import SimpleNamespace

import pytest
import torch
from benchmarks.peers import flower_client, layouts, torch_parts
from benchmarks.workloads import WORKLOADS, Workload
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from torch import nn

TINY = Workload("tiny", 2, 1, 4, (1, 28, 28), 2, 0.05, "lenet5")


@pytest.mark.parametrize(
    ("precision", "dtype"), [("float32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_layers_of_flower_s_client_compute_in_it(precision, dtype, monkeypatch):
    seen, network_of = set(), torch_parts.network_of

    def watched(work):
        network = network_of(work)
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.register_forward_hook(lambda layer, inputs, output: seen.add(output.dtype))
        return network

    monkeypatch.setenv("PEERS_PRECISION", precision)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setitem(WORKLOADS, "tiny", TINY)
    monkeypatch.setattr(torch_parts, "network_of", watched)
    monkeypatch.setattr(flower_client, "Message", lambda content, reply_to: content)
    arrays = ArrayRecord(network_of(TINY).state_dict())
    message = RecordDict({"arrays": arrays, "config": ConfigRecord({"title": "tiny"})})
    context = SimpleNamespace(node_config={"partition-id": 1})
    reply = flower_client.train(SimpleNamespace(content=message), context)
    assert seen == {dtype}
    sent = reply["arrays"].to_torch_state_dict()
    assert {tensor.dtype for tensor in sent.values()} == {torch.float32}


@pytest.mark.parametrize(("requested", "expected"), [(None, ["a", "b"]), ("b;other", ["b"])])
def test_only_requested_layouts_run(requested, expected, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["peer", "W1"])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(layouts, "_run_layout", lambda program, name, layout: {name: [1.0]})
    if requested is not None:
        monkeypatch.setenv(layouts.REQUESTED, requested)
    layouts.main("program", {"a": layouts.Layout(), "b": layouts.Layout()}, lambda *_: {})
    assert list(json.loads(capsys.readouterr().out)) == expected
