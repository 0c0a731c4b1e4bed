"""Whether a replay fits into memory, asked before a run starts.

The kernel gives memory to a replay only as it fills. So one that is too large would end a run hours later.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace

from evorl.mdp.core import Spec
from evorl.util.errors import BadRequest
from evorl.util.memory import available, gigabytes

LOG = logging.getLogger("evorl")


def uncompressed(spec: Spec, compress: bool) -> Spec:
    """Return a spec without the inputs that are kept compressed, whose size is not known before they are seen."""
    return replace(spec, inputs=tuple(entry for entry in spec.inputs if not (compress and entry.dtype == "uint8")))


def check_memory(needed: int, spec: Spec, key: str, held: str, copies: int = 1) -> None:
    """Raise `BadRequest` at ``key`` where a replay takes more memory than is left; warn where it takes over half.

    ``needed`` bytes in each of ``copies`` processes of this machine. ``held`` says what for: "1000 transitions".
    """
    if not needed:
        return
    left, bound = available()
    total = needed * copies
    times = f"{copies} replays at once, each of " if copies > 1 else ""
    inputs = " and ".join(f"{entry.name} ({entry.dtype} {list(entry.shape)})" for entry in spec.inputs)
    says = f"{times}{held} of {inputs} take {gigabytes(total)} ({total} bytes), and {gigabytes(left)} are left: {bound}"
    if total > left:
        raise BadRequest(f"{says}; about {math.floor(100 * left / total)} % of it would fit", key)
    if 2 * total > left:
        LOG.warning("%s: %s", key, says)
