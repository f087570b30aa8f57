"""The server, the uploads and the weightings as one part sees them: with its own tensors alone."""

from dataclasses import replace

from torch import Tensor

from unskew.aggregation.uploads import Uploads
from unskew.aggregation.weighting import ClientWeighting, Diagnostics
from unskew.composition.parts import Part
from unskew.composition.values import Server, Tensors


def own_server(server: Server, part: Part) -> Server:
    """Return the server as a part sees it."""
    if server.state:
        return Server(server.vector, part.scoped(server.state))
    return server


def own_uploads(uploads: Uploads, part: Part) -> Uploads:
    """Return the uploads as a part sees them."""
    return replace(uploads, extras=part.scoped(uploads.extras))


def with_own(server: Server, part: Part, state: Tensors) -> Server:
    """Return the server with a part's tensors replaced."""
    return replace(server, state=without_own(server.state, part) | part.prefixed(state))


def without_own(tensors: Tensors, part: Part) -> dict[str, Tensor]:
    """Return all tensors but those of one part."""
    own = part.prefixed(part.scoped(tensors))
    return {name: each for name, each in tensors.items() if name not in own}


def on_own_uploads(weighting: ClientWeighting, part: Part) -> ClientWeighting:
    """Return a weighting that reads the extras of its part alone."""

    def derive(uploads: Uploads) -> tuple[Tensor, Diagnostics]:
        return weighting.derive(own_uploads(uploads, part))

    return ClientWeighting(weighting.name, derive)
