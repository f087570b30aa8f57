"""A shared tensor is passed to a worker once, and its memory is refilled in every round."""

import torch

from unskew.engine.shared_tensors import SharedTensorReader, SharedTensors


def test_a_tensor_for_many_clients_is_copied_once_and_passed_once_per_worker():
    shared, model = SharedTensors(), torch.arange(3.0)
    known: set[int] = set()
    first = shared.put({"model": model}, known)
    second = shared.put({"model": model.view(3)}, known)
    assert list(first.new) == list(first.numbers.values())
    assert second.new == {}
    assert second.numbers == first.numbers
    assert len(shared.put({"model": model}, set()).new) == 1


def test_the_next_round_fills_the_same_memory():
    shared, reader, known = SharedTensors(), SharedTensorReader(), set[int]()
    shared.begin_round()
    payload = reader.read(shared.put({"model": torch.zeros(2)}, known))
    assert payload["model"].tolist() == [0.0, 0.0]
    shared.begin_round()
    refs = shared.put({"model": torch.ones(2)}, known)
    assert refs.new == {}
    assert reader.read(refs)["model"].tolist() == [1.0, 1.0]


def test_two_models_of_one_round_do_not_share_memory():
    shared, reader, known = SharedTensors(), SharedTensorReader(), set[int]()
    for value in (0.0, 5.0):
        shared.begin_round()
        models = [torch.full((2,), value), torch.full((2,), value + 1)]
        payloads = [reader.read(shared.put({"model": model}, known)) for model in models]
        assert [payload["model"].tolist() for payload in payloads] == [
            [value, value],
            [value + 1, value + 1],
        ]


def test_memory_that_a_round_did_not_use_is_released():
    shared, reader, known = SharedTensors(), SharedTensorReader(), set[int]()
    shared.begin_round()
    reader.read(shared.put({"a": torch.zeros(2), "b": torch.zeros(7)}, known))
    for _ in range(2):
        shared.begin_round()
        reader.read(shared.put({"a": torch.zeros(2)}, known))
    assert len(reader._tensors) == len(known) == len(shared._tensors) == 1


def test_integers_and_transposed_tensors_arrive_unchanged():
    shared, reader, known = SharedTensors(), SharedTensorReader(), set[int]()
    sent = {"integers": torch.tensor([1, 2]), "transposed": torch.arange(6.0).view(2, 3).T}
    for _ in range(2):
        shared.begin_round()
        payload = reader.read(shared.put(sent, known))
        assert all(torch.equal(payload[name], sent[name]) for name in sent)
        assert payload["integers"].dtype == torch.int64
