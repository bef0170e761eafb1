"""Who leads: one instance's part of the election, as a state machine. Pure: time is an argument.

Consensus is etcd's: a transaction that compares the owner's revision and the epoch makes an instance the leader of a
new epoch, so that no epoch ever has two. That cannot prevent that an older leader, which was frozen or cut off, still
believes to lead; therefore devices obey the greatest epoch alone (docs/reference/dataplane.md), and a leader follows
once another instance, etcd or most devices show a greater one.

A leader goes on without etcd. The lease of the owner's key only says how long etcd remembers one that is gone. Another
instance takes over without waiting for it: when its connections to the leader are reset, or after some silence, as long
as neither a third instance nor most agents hear the leader. Time in which this process did not run is no silence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum

from .device_words import Contradiction, DeviceWords


class Role(StrEnum):
    """What an instance does."""

    STARTING = "starting"
    """It has not read etcd yet."""
    FOLLOWER = "follower"
    LEADER = "leader"
    DRAINING = "draining"
    """It follows, and is not to lead."""


@dataclass(frozen=True, slots=True)
class Identity:
    """An instance: its name, a number of its own for each start, and where it is reached."""

    name: str
    boot: str
    rest: str = ""
    peer: str = ""
    schema: int = 1


@dataclass(frozen=True, slots=True)
class Owner:
    """Who leads by etcd."""

    name: str
    boot: str
    epoch: int
    revision: int
    """That of the last change of the key."""
    rest: str = ""
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """An instance that etcd knows of; ``lease`` is what its keys live by."""

    identity: Identity
    lease: int = 0
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What etcd said in one consistent read. A revision of 0: there is no such key."""

    revision: int
    owner: Owner | None = None
    epoch: int = 0
    epoch_revision: int = 0
    schema: int = 0
    stamp: int = 0
    """The revision of the last change of the intents."""
    members: Mapping[str, Member] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()
    """Keys of these, without the network's prefix, whose values can't be used."""


@dataclass(frozen=True, slots=True)
class Beat:
    """What an instance says of itself, several times in the time of silence that counts as death."""

    identity: Identity
    role: Role
    epoch: int
    """The greatest that it knows of."""
    stamp: int = 0
    warm: bool = False
    """It has read etcd and heard all devices."""
    leader: str = ""
    leader_epoch: int = 0
    leader_age_s: float = -1.0
    """How long ago it heard ``leader``, of ``leader_epoch``, itself; less than 0: never."""
    yields: bool = False
    """It leads without etcd: whoever reaches etcd shall take over."""


@dataclass(frozen=True, slots=True)
class Rules:
    """``silence_s`` of a leader counts as its death; one that was never heard has ``patience_s``. An instance that
    is not warm lets others go first for ``cold_s``. ``again_s`` is between two attempts. A leader that has been without
    etcd for ``without_etcd_s`` yields to one that has reached it for ``reach_s``, longer than finding it again takes.
    """

    silence_s: float = 0.25
    patience_s: float = 2.0
    cold_s: float = 0.5
    again_s: float = 0.1
    without_etcd_s: float = 5.0
    reach_s: float = 3.0
    pause_s: float = 0.1
    """Who did not decide for longer was not running itself."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Become owner of ``epoch`` by a transaction, if owner and epoch in etcd still have these revisions."""

    epoch: int
    owner_revision: int
    epoch_revision: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Put our owner's key again, whose lease has ended, if nobody else has and the epoch is still ours."""

    epoch: int
    epoch_revision: int


@dataclass(frozen=True, slots=True)
class HandOver:
    """Make another instance the owner of the next epoch, under its own lease, if we still are that of this one."""

    to: Member
    epoch: int
    owner_revision: int
    epoch_revision: int


@dataclass(frozen=True, slots=True)
class Lead:
    """Lead with this epoch. The intents were last changed at ``stamp``."""

    epoch: int
    stamp: int = 0


@dataclass(frozen=True, slots=True)
class Follow:
    """Lead no more, because of ``why``."""

    why: str


Action = Campaign | Restore | HandOver | Lead | Follow


SUSPECT = 0.4
"""The part of the silence that counts as death, after which agents are asked."""
MAX_STEP = 1_000_000
"""An epoch that is greater than all before by more is nobody's."""


@dataclass
class _Peer:
    beat: Beat
    heard_s: float
    reset_s: float | None = None

    @property
    def is_reset(self) -> bool:
        return self.reset_s is not None


@dataclass(frozen=True, slots=True)
class _Heard:
    """The last sign of life of a leader: its own, or one that another instance had of it. Epoch 0: there was none."""

    name: str
    epoch: int
    at_s: float


@dataclass
class Election:
    """One instance. Inputs are methods; :meth:`decide` gives what is to be done next, one thing at a time."""

    me: Identity
    now_s: float
    _: KW_ONLY
    rules: Rules = Rules()
    leads: int | None = None
    """The epoch with which we lead."""
    greatest: int = 0
    """The greatest epoch that anybody has shown us."""
    seen: Seen | None = None
    warm: bool = False
    drains: bool = False

    def __post_init__(self) -> None:
        self._peers: dict[str, _Peer] = {}
        self._etcd_failed = True
        self._under_way = self._is_stale = False
        self._tried_s = -math.inf
        self._decided_s = self.started_s = self.now_s
        self._heard = _Heard("", 0, self.now_s)
        self._owner_revision, self._owner_s = 0, self.now_s
        self.devices = DeviceWords()
        self._contradictions: list[Contradiction] = []
        self._etcd_changed_s = self.now_s
        self._to: str | None = None

    # -- inputs

    def etcd_read(self, seen: Seen, now_s: float) -> None:
        """A read was answered; older ones than the last are ignored."""
        if self._etcd_failed:
            self._etcd_failed, self._etcd_changed_s = False, now_s
        if self.seen is not None and seen.revision < self.seen.revision:
            return
        self.seen, self._is_stale = seen, False
        self.epoch_seen(max(seen.epoch, seen.owner.epoch if seen.owner else 0))
        revision = seen.owner.revision if seen.owner is not None else 0
        if revision != self._owner_revision:
            self._owner_revision, self._owner_s = revision, now_s
        self._contradictions += self.devices.etcd_read(self.greatest, now_s)

    def etcd_failed(self, now_s: float) -> None:
        """A request was not answered: nothing is known of etcd until it answers again."""
        if not self._etcd_failed:
            self._etcd_failed, self._etcd_changed_s = True, now_s

    def epoch_seen(self, epoch: int) -> bool:
        """An instance, etcd or most devices show an epoch; False if it is out of all proportion."""
        if epoch - self.greatest > MAX_STEP:
            return False
        self.greatest = max(self.greatest, epoch)
        return True

    def heard(self, beat: Beat, now_s: float) -> None:
        """A heartbeat of another instance."""
        if not self.epoch_seen(beat.epoch):
            return
        self._peers[beat.identity.name] = _Peer(beat, now_s)
        if beat.role is Role.LEADER and beat.epoch >= self._epoch_of_owner:
            self._heard = _Heard(beat.identity.name, beat.epoch, now_s)
        elif beat.leader_age_s >= 0 and beat.leader_epoch >= max(self._epoch_of_owner, self._heard.epoch):
            at_s = now_s - beat.leader_age_s
            if at_s > self._heard.at_s:
                self._heard = _Heard(beat.leader, beat.leader_epoch, at_s)

    def reset(self, name: str, now_s: float) -> None:
        """All connections with an instance were reset: its process has ended."""
        peer = self._peers.get(name)
        if peer is not None and peer.reset_s is None:
            peer.reset_s = now_s

    def device_shows(self, node: str, epoch: int, now_s: float) -> bool:
        """A device shows the greatest epoch that it knows; whether etcd is to be read now. Only most devices count."""
        is_to_read = self.devices.shows(node, epoch, self.greatest, now_s)
        self.epoch_seen(self.devices.epoch_of_most)
        return is_to_read

    def contradictions(self) -> list[Contradiction]:
        """Devices that have contradicted etcd or most devices since this was called last."""
        found, self._contradictions = self._contradictions, []
        return found

    def drain(self, drains: bool) -> None:
        """Whether we are to lead no more, until it is taken back."""
        self.drains = drains
        self._to = "" if drains and self.leads is not None else None

    def hand_over(self, name: str | None) -> None:
        """Somebody wishes that another instance (None: the best one) leads."""
        self._to = name or ""

    def keep_leading(self) -> None:
        """The wish is taken back."""
        self._to = None

    def answered(self, action: Action, now_s: float) -> None:
        """A transaction was answered, or failed: what became of it is read again."""
        self._under_way = False
        self._tried_s = now_s
        if isinstance(action, HandOver):
            self._to = None
        # Nothing is decided on what was so before.
        self._is_stale = True

    # -- what is so

    @property
    def _epoch_of_owner(self) -> int:
        return 0 if self.seen is None else max(self.seen.epoch, self.seen.owner.epoch if self.seen.owner else 0)

    @property
    def role(self) -> Role:
        """What we do."""
        if self.leads is not None:
            return Role.LEADER
        if self.drains:
            return Role.DRAINING
        return Role.STARTING if self.seen is None else Role.FOLLOWER

    @property
    def etcd_is_reachable(self) -> bool:
        """Whether etcd answered the last request."""
        return not self._etcd_failed

    def suspects(self, now_s: float) -> bool:
        """Whether agents are to be asked if they hear the leader: it is silent, but not yet for long."""
        return self.leads is None and now_s - self._heard.at_s > SUSPECT * self.rules.silence_s

    def leader(self, now_s: float) -> Identity | None:
        """Who leads, as far as is known; None: no instance does. Addresses are those that etcd has, or empty."""
        if self.leads is not None:
            return self.me
        for peer in self._peers.values():
            is_fresh = now_s - peer.heard_s <= self.rules.silence_s and not peer.is_reset
            if is_fresh and peer.beat.role is Role.LEADER and peer.beat.epoch >= self.greatest:
                return self._as_in_etcd(peer.beat.identity)
        owner = self.seen.owner if self.seen is not None else None
        if owner is None or owner.boot == self.me.boot or self._reset_s(owner) is not None:
            return None
        return Identity(owner.name, owner.boot, owner.rest, owner.peer)

    def _as_in_etcd(self, said: Identity) -> Identity:
        """An instance that was heard, with the addresses that etcd has of it."""
        seen = self.seen or Seen(0)
        known: list[Owner | Identity] = [seen.owner] if seen.owner is not None and seen.owner.name == said.name else []
        known += [seen.members[said.name].identity] if said.name in seen.members else []
        found = next((one for one in known if one.boot == said.boot), Identity("", ""))
        return replace(said, rest=found.rest, peer=found.peer)

    def peers(self, now_s: float) -> dict[str, tuple[Beat, float]]:
        """What other instances said last, and how long ago."""
        return {name: (peer.beat, now_s - peer.heard_s) for name, peer in self._peers.items()}

    def beat(self, now_s: float, stamp: int) -> Beat:
        """What to tell the others."""
        leaders = [
            (peer.beat.epoch, name, now_s - peer.heard_s)
            for name, peer in self._peers.items()
            if peer.beat.role is Role.LEADER and not peer.is_reset
        ]
        epoch, name, age_s = max(leaders, default=(0, "", -1.0))
        is_without = self._etcd_failed and now_s - self._etcd_changed_s > self.rules.without_etcd_s
        yields = self.leads is not None and is_without
        return Beat(self.me, self.role, self.greatest, stamp, self.warm, name, epoch, age_s, yields)

    # -- decisions

    def decide(self, now_s: float) -> Action | None:
        """What is to be done now. A transaction is to be :meth:`answered` before the next one is given."""
        gap_s = now_s - self._decided_s
        self._decided_s = now_s
        if gap_s > self.rules.pause_s:
            # We did not run; what others said meanwhile is still to be read.
            self._heard = replace(self._heard, at_s=self._heard.at_s + gap_s)
            self.devices.shift(gap_s)
            self._owner_s += gap_s
        if self.leads is not None and self.greatest > self.leads:
            why = f"epoch {self.greatest} is greater than ours, {self.leads}"
            self.leads, self._to = None, None
            return Follow(why)
        if self._under_way or self._etcd_failed or self._is_stale or self.seen is None:
            return None
        action = self._as_leader(self.seen) if self.leads is not None else self._as_follower(self.seen, now_s)
        self._under_way = action is not None and not isinstance(action, Lead)
        return action

    def _as_leader(self, seen: Seen) -> Action | None:
        assert self.leads is not None  # noqa: S101 - decide() looked
        if seen.owner is None and seen.epoch == self.leads:
            return Restore(self.leads, seen.epoch_revision)
        if self._to is None or seen.owner is None or seen.owner.boot != self.me.boot:
            return None
        to = self._heir(seen)
        if to is None:
            return None
        return HandOver(to, self.greatest + 1, seen.owner.revision, seen.epoch_revision)

    def _heir(self, seen: Seen) -> Member | None:
        """Whom leadership is handed to: who was named, or one that is warm."""

        def fits(name: str, member: Member) -> bool:
            peer = self._peers.get(name)
            is_live = peer is not None and not peer.is_reset and peer.beat.identity.boot == member.identity.boot
            return is_live and name != self.me.name and not member.draining and peer is not None and peer.beat.warm

        found = [member for name, member in sorted(seen.members.items()) if fits(name, member)]
        return next((member for member in found if self._to in ("", member.identity.name)), None)

    def _as_follower(self, seen: Seen, now_s: float) -> Action | None:
        owner = seen.owner
        if owner is not None and owner.boot == self.me.boot and owner.epoch >= self.greatest:
            # We won, or leadership was handed to us.
            self.leads, self._to = owner.epoch, None
            return Lead(owner.epoch, seen.stamp)
        if self.drains or now_s - self._tried_s < self.rules.again_s:
            return None
        has_sign = self._has_sign(owner, now_s)
        if has_sign and not self._is_asked(now_s):
            return None
        own = seen.members.get(self.me.name)
        if own is None or own.identity.boot != self.me.boot:
            return None  # Another instance of our name is known, or we are not registered yet.
        if not has_sign:
            self._contradictions += self.devices.outvoted(self._epoch_of_owner, now_s, self.rules.silence_s)
        return Campaign(self.greatest + 1, 0 if owner is None else owner.revision, seen.epoch_revision)

    def _has_sign(self, owner: Owner | None, now_s: float) -> bool:
        """Whether somebody leads, or may do so, as far as is known."""
        rules = self.rules
        wait_s = 0.0 if self.warm or not self._somebody_is_warm(now_s) else rules.cold_s
        reset_s = self._reset_s(owner)
        if reset_s is not None:
            return now_s - reset_s < wait_s
        if self.devices.lives(self._epoch_of_owner, now_s, rules.silence_s):
            return True
        silence_s = rules.silence_s + wait_s
        if self._heard.epoch and self._heard.epoch >= self._epoch_of_owner:
            return now_s - self._heard.at_s < silence_s
        if owner is not None and owner.boot != self.me.boot:
            # Its leader was never heard here: connections may not be there yet.
            return now_s - self._owner_s < rules.patience_s + wait_s
        return now_s - self.started_s < silence_s

    def _is_asked(self, now_s: float) -> bool:
        """Whether a leader that is without etcd asks for another one, and we have what it lacks."""
        fresh = (peer for peer in self._peers.values() if now_s - peer.heard_s <= self.rules.silence_s)
        yields = any(peer.beat.yields and not peer.is_reset and peer.beat.epoch >= self.greatest for peer in fresh)
        return yields and self.warm and now_s - self._etcd_changed_s >= self.rules.reach_s

    def _reset_s(self, owner: Owner | None) -> float | None:
        """When the connections with whoever leads were reset; None if they were not."""
        if owner is not None and owner.boot == self.me.boot:
            return None
        peer = self._peers.get(owner.name if owner is not None else self._heard.name)
        is_other = peer is not None and owner is not None and peer.beat.identity.boot != owner.boot
        return None if peer is None or is_other else peer.reset_s

    def _somebody_is_warm(self, now_s: float) -> bool:
        fresh = (peer for peer in self._peers.values() if now_s - peer.heard_s <= self.rules.silence_s)
        return any(peer.beat.warm and not peer.is_reset and peer.beat.role is Role.FOLLOWER for peer in fresh)
