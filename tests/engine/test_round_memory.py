"""A round frees what its clients sent at its end, and copies it no more than necessary."""

import gc
import weakref

import pytest
import torch

import unskew as us
from toys import vector_of
from unskew.aggregation.blocks import as_matrix
from unskew.composition.method import Method
from unskew.engine import memory, upload_checks
from unskew.engine.extras import ExtrasMatrix


@pytest.mark.parametrize("method", ["scaffold", "fednova"])
def test_uploads_are_freed_without_the_garbage_collector(federation, monkeypatch, method):
    sent, unacceptable = [], upload_checks.unacceptable

    def remembering(context, round_, tasks, result, *args):
        sent.extend(weakref.ref(each) for each in result.finished)
        return unacceptable(context, round_, tasks, result, *args)

    monkeypatch.setattr(upload_checks, "unacceptable", remembering)
    gc.collect()
    gc.disable()
    try:
        us.train(federation, method, model="logistic", rounds=2, runner="loop", progress=False)
        assert len(sent) == 8
        assert not any(each() is not None for each in sent)
    finally:
        gc.enable()


@pytest.mark.parametrize(("runner", "vectors"), [("loop", 3), ("processes", 5), ("vectorised", 3)])
def test_the_server_aggregates_with_four_stacks_in_memory(federation, monkeypatch, runner, vectors):
    """Models, sent changes, and the control variates before and after the round.

    There are a few vectors besides: the model and the control variate of the server, for example,
    and in worker processes their copies that the workers share.
    """
    stacks, aggregate = [], Method.aggregate

    def counting(method, server, uploads):
        size = server.vector.nbytes
        new = {place: n for place, n in _storages().items() if place not in before}
        stacks.append(sum(n for n in new.values() if n % size == 0) / (len(uploads) * size))
        return aggregate(method, server, uploads)

    monkeypatch.setattr(Method, "aggregate", counting)
    gc.collect()
    before = _storages()
    options = {"runner": runner, "workers": 2, "evaluate_every": 0, "progress": False}
    us.train(federation, "scaffold", model="logistic", rounds=3, **options)
    assert 4 <= stacks[2] <= 4 + vectors / len(federation)


def test_large_extras_of_vectorised_clients_are_the_rows_of_a_matrix(federation, monkeypatch):
    results, large = {}, []

    def matrices(vectors):
        matrix = as_matrix(vectors)
        large.append(matrix.data_ptr() == vectors[0].data_ptr())
        return matrix

    monkeypatch.setattr("unskew.methods.scaffold.as_matrix", matrices)
    options = {"runner": "vectorised", "evaluate_every": 0, "progress": False}
    for limit in (memory._MIN_STACK_BYTES, 0):
        monkeypatch.setattr(memory, "_MIN_STACK_BYTES", limit)
        run = us.train(federation, "scaffold", model="logistic", rounds=3, **options)
        results[limit] = vector_of(run)
    assert large == [False] * 3 + [True] * 3
    assert torch.equal(*results.values())


def _storages():
    """Return the bytes of all storages that tensors use, by their place in memory."""
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    storages = [tensor.untyped_storage() for tensor in tensors]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def test_the_gaps_of_the_heap_are_returned_more_often_towards_the_end(monkeypatch):
    calls = []
    monkeypatch.setattr(memory, "_glibc_function", lambda name: lambda pad: calls.append(left))
    stack = torch.empty(20, memory._MIN_STACK_BYTES // 80 + 1)
    for left in reversed(range(20)):
        memory.return_freed_memory(stack, left)
        memory.return_freed_memory(stack[:, :-1], left)
    assert calls == [8, 4, 2, 1, 0]


def test_the_extras_of_a_cohort_are_the_rows_of_a_matrix():
    extras = ExtrasMatrix(3)
    vectors = [torch.arange(4.0) + k for k in range(3)]
    rows = [extras.copied(k, {"control": vector})["control"] for k, vector in enumerate(vectors)]
    matrix = as_matrix(rows)
    assert torch.equal(matrix, torch.stack(vectors))
    assert matrix.data_ptr() == rows[0].data_ptr()
    rows[1] += 1
    assert torch.equal(vectors[1], torch.arange(4.0) + 1)
    assert torch.equal(matrix[1], vectors[1] + 1)


def test_other_vectors_are_stacked():
    rows = torch.arange(12.0).reshape(3, 4)
    for vectors in (
        [rows[0], rows[2]],
        [rows[1], rows[0]],
        list(rows.T),
        [rows[0], rows[1].clone()],
    ):
        assert torch.equal(as_matrix(vectors), torch.stack(vectors))


def test_extras_of_different_shapes_are_copied_one_by_one():
    extras = ExtrasMatrix(2)
    extras.copied(0, {"a": torch.zeros(2)})
    other = torch.ones(3, dtype=torch.int64)
    copy = extras.copied(1, {"a": other})["a"]
    assert torch.equal(copy, other)
    assert copy.data_ptr() != other.data_ptr()
