"""MPTCP connections that the network has recognised, and their subflows."""

from __future__ import annotations

from marshmallow import Schema, fields, validate

from .contract import Listed
from .resource import Collection
from .schemas import required


class EntrySchema(Schema):
    """Where frames of a host enter the network."""

    node = fields.String(**required())
    port_name = fields.String(**required("name of the port of its switch"))


class SubflowSchema(Schema):
    """A TCP connection of an MPTCP connection."""

    client_ip = fields.String(**required("the client's address"))
    client_port = fields.Integer(**required("the client's TCP port"))
    peer_ip = fields.String(**required("the peer's address"))
    peer_port = fields.Integer(**required("the peer's TCP port"))
    begun_by = fields.String(**required("who sent its SYN", validate=validate.OneOf(["client", "peer"])))
    address_id = fields.Integer(**required("of the address that joined, as its host counts; 0: the first subflow"))
    backup = fields.Boolean(**required("it was joined to be used when no other subflow works"))
    enters_at = fields.Nested(EntrySchema, **required("where the client's frames enter the network"))
    peer_enters_at = fields.Nested(EntrySchema, **required("where the peer's frames enter the network"))
    since_s = fields.Float(**required("seconds since its handshake"))


class MptcpConnectionSchema(Schema):
    """An MPTCP connection."""

    id = fields.String(**required("the peer's token, hexadecimal; a number follows where several have one token"))
    client = fields.String(**required("who began it: the id of a client or node, else a MAC address"))
    peer = fields.String(**required("who answered: the id of a client or node, else a MAC address"))
    mptcp_version = fields.Integer(**required("0 (RFC 6824) or 1 (RFC 8684)"))
    since_s = fields.Float(**required("seconds since its first handshake"))
    heard_s = fields.Float(**required("seconds since something was last heard of it: a subflow that joined"))
    subflows = fields.List(fields.Nested(SubflowSchema), **required("its subflows, oldest first"))


def blueprint(service: Listed) -> Collection:
    """The resource ``connections``."""
    found = Collection("connections", "<id:connection>", MptcpConnectionSchema, "MPTCP connections that are recognised")
    found.reads(service, "All MPTCP connections, in the order of their ids.", "One MPTCP connection.")
    return found
