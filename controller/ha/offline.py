"""Takes a state file over into etcd, while no controller runs. Plain blocking requests, no green threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hyroads.controller.core.errors import HyroadsError
from hyroads.controller.settings.ha import HaSettings

from .etcd import EPOCH, STAMP, Etcd
from .store import Compare, Intents, KeyEncoder, Put, difference, loaded, transactions


class ImportRefusedError(HyroadsError):
    """Nothing was written."""


def import_state(document: Mapping[str, Any], ha: HaSettings, prefix: str, *, replace: bool = False) -> int:
    """Write what a state file has (its checked sections) to etcd; how many objects that are.

    ``prefix`` is ``ha.prefix(network, file)``. What is there is only written over with ``replace``. Raises
    ImportRefusedError, EtcdError.
    """
    etcd = Etcd(ha.etcd, prefix, ha.timings.etcd_timeout_s, ha.tls)
    seen, read = etcd.seen(), etcd.intents()
    if seen.owner is not None:
        raise ImportRefusedError(f"controller {seen.owner.name!r} leads: stop all controllers first")
    if read.values and not replace:
        raise ImportRefusedError(f"etcd has {len(read.values)} objects below {prefix} already")
    encoder = KeyEncoder()
    encoder.adopt({key: loaded(text) for key, text in read.values.items()})
    keys = encoder.encode(Intents.of_document(document))
    # Whoever begins to lead meanwhile has another epoch.
    epoch = Compare(prefix + EPOCH, revision=seen.epoch_revision)
    for batch in transactions(difference(read.values, keys), prefix, epoch, Put(prefix + STAMP, "0")):
        etcd.write(batch)
    return len(keys)
