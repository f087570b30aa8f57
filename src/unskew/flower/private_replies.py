"""Replies of private stages as bytes, which the ledger keeps, and hashes of their requests."""

import hashlib
import json

import torch
from flwr.app import MetricRecord, RecordDict
from safetensors.torch import load, save

from unskew.composition.values import Tensors
from unskew.flower.requests import Request
from unskew.flower.wire import ARRAYS, METRICS, to_arrays, to_tensors
from unskew.runs.state_files import contiguous_copy


def hash_of_request(request: Request, tensors: Tensors) -> str:
    """Return a hash of all that a server sends for a round."""
    digest = hashlib.sha256(request.model_dump_json().encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(repr((name, tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


def reply_to_bytes(reply: RecordDict) -> bytes:
    """Return the arrays and metrics of a reply as bytes, without loss."""
    metrics = bytearray(json.dumps(dict(reply.metric_records[METRICS])).encode())
    arrays = to_tensors(reply.array_records[ARRAYS])
    stored = {f"{ARRAYS}/{name}": contiguous_copy(tensor) for name, tensor in arrays.items()}
    return save({**stored, METRICS: torch.frombuffer(metrics, dtype=torch.uint8)})


def reply_from_bytes(content: bytes) -> RecordDict:
    """Return the reply that :func:`reply_to_bytes` has stored."""
    tensors = load(content)
    metrics = json.loads(bytes(tensors.pop(METRICS).tolist()))
    arrays = {name.removeprefix(f"{ARRAYS}/"): tensor for name, tensor in tensors.items()}
    return RecordDict({ARRAYS: to_arrays(arrays), METRICS: MetricRecord(metrics)})
