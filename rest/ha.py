"""The resource ``ha``: which of several controllers leads, and who is to."""

from __future__ import annotations

from typing import Any, Protocol

from flask import Response, request
from flask.typing import ResponseReturnValue
from marshmallow import Schema, fields

from .access import READING_POSTS, READS
from .contract import IDENTITY, PREFIX, Document, NotFoundError
from .resource import Resource, problem, reply
from .schemas import Strict, about, identifier, required

LOCAL = (f"{PREFIX}/ha/drain", f"{PREFIX}/reload")
"""What each instance does itself, whether it leads or not."""


class HotStandby(Protocol):
    """This controller as one of several."""

    def document(self) -> Document:
        """What is known of all of them."""

    def leader_rest(self) -> str | None:
        """The address of the leader's REST API; empty: this is the leader. None: there is none."""

    def hand_over(self, to: str | None) -> Document:
        """Another instance leads; ConflictError, StoreAwayError."""

    def drain(self, drains: bool) -> Document:
        """Lead no more, or again; ConflictError, StoreAwayError."""

    def finish_upgrade(self) -> Document:
        """Write what only instances of our version can read; ConflictError, StoreAwayError."""


class LeaderSchema(Schema):
    """Who leads."""

    name = fields.String(**required())
    rest = fields.String(**required("where its REST API is"))
    peer = fields.String(**required("where other instances dial"))


class InstanceSchema(LeaderSchema):
    """One controller of several."""

    role = fields.String(**required("leader, follower, draining, starting; unknown: it was never heard"))
    schema = fields.Integer(**required("the newest form of etcd's keys that it writes"))
    seen_s = fields.Float(**required("seconds since it was heard; null: never", allow_none=True))


class EtcdSchema(Schema):
    """Whether the state can be written."""

    reachable = fields.Boolean(**required("whether it answers"))
    failing_since_s = fields.Float(**required("seconds; null: it answers", allow_none=True))


class HaHealthSchema(Schema):
    """A controller's part in hot standby."""

    role = fields.String(**required("leader, follower, draining or starting"))
    epoch = fields.Integer(**required("the greatest known"))
    warm = fields.Boolean(**required("whether it could lead at once"))
    broken_keys = fields.List(
        fields.String(), **required("keys of etcd, without the prefix, whose values are left out; 20 at most")
    )


class HaSchema(Schema):
    """All controllers of the network, as this one knows them."""

    name = fields.String(**required("of the one that answers"))
    role = fields.String(**required("leader, follower, draining or starting"))
    epoch = fields.Integer(**required("the greatest known; each leader has a greater one than that before"))
    leader = fields.Nested(LeaderSchema, **required("null: nobody leads, as far as is known", allow_none=True))
    members = fields.List(fields.Nested(InstanceSchema), **required("all that are known, this one too"))
    etcd = fields.Nested(EtcdSchema, **required("where the state is saved"))
    schema = fields.Integer(**required("the newest form of etcd's keys that the one that answers writes"))


class HandOverSchema(Strict):
    """Who shall lead."""

    to = identifier("name of an instance; null: any that is ready", 32, load_default=None, allow_none=True)


class DrainSchema(Strict):
    """Whether the instance that is asked shall lead no more."""

    drain = fields.Boolean(load_default=True, **about("false: it may lead again"))


def blueprint(standby: HotStandby | None) -> Resource:
    """The resource; everything is 404 if there is one controller."""
    found = Resource("hot standby", url_prefix=f"{PREFIX}/ha", description="Several controllers, of which one leads")
    refusals = {404: "there is one controller", 409: "no instance is ready for it", 503: "it was not done in time"}

    def known() -> HotStandby:
        if standby is None:
            raise NotFoundError("this controller has no ha in its settings")
        return standby

    @found.endpoint("get", "", {200: None, 404: "there is one controller"}, HaSchema)
    def show() -> ResponseReturnValue:
        """Which controllers there are, and which of them leads."""
        return reply(known().document())

    @found.endpoint("post", "/handover", {200: "another one leads", **refusals}, HaSchema, body=HandOverSchema)
    def hand_over(body: dict[str, Any]) -> ResponseReturnValue:
        """Let another controller lead from now on."""
        return reply(known().hand_over(body["to"]))

    @found.endpoint("post", "/drain", {200: "it leads no more, or may again", **refusals}, HaSchema, body=DrainSchema)
    def drain(body: dict[str, Any]) -> ResponseReturnValue:
        """The controller that is asked leads no more until it is restarted, or until this is taken back."""
        return reply(known().drain(body["drain"]))

    @found.endpoint("post", "/finish-upgrade", {200: "it is finished", **refusals}, HaSchema)
    def finish_upgrade() -> ResponseReturnValue:
        """All controllers are of the new version: write what older ones can't read."""
        return reply(known().finish_upgrade())

    return found


def elsewhere(standby: HotStandby) -> Response | None:
    """The answer to a request that only the leader can carry out; None: go on here."""
    if request.method in READS or request.path in LOCAL or request.path.startswith(READING_POSTS):
        return None
    where = standby.leader_rest()
    if where == "":
        return None
    if where is None or request.environ.get(IDENTITY) is not None:
        answer = problem(503, "no controller leads now" if where is None else "another controller leads")
        answer.headers["Retry-After"] = "1"
        return answer
    answer = problem(307, "another controller leads", leader=where)
    raw = str(request.environ.get("RAW_URI") or request.environ.get("RAW_PATH_INFO") or request.path)
    path = raw if "?" in raw or not request.query_string else f"{raw}?{request.query_string.decode('latin-1')}"
    answer.headers["Location"] = where + path
    return answer
