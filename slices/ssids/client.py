"""Asks an access point's SNMP agent, one request after the other."""

from __future__ import annotations

import secrets
import socket
import time

from hyroads.slices.snmpvisor.backend import Backend
from hyroads.slices.snmpvisor.config import Device
from hyroads.slices.snmpvisor.pdu import END_OF_VIEW, Binding, Kind, Oid, Pdu, SnmpError, Status

ANSWER_S, SET_S = 1.0, 15.0
TRIES = 3
MAX_DATAGRAM = 65_535
MAX_VARIABLES = 4096


class AgentError(SnmpError):
    """An agent does not answer, or refuses; ``status`` is SNMP's error, 0 if there was no answer."""

    def __init__(self, device: str, problem: str, status: int = 0) -> None:
        self.status = status
        super().__init__(f"access point {device}: {problem}")


class Client:
    """A connection to one agent."""

    def __init__(self, device: Device) -> None:
        self._name = device.name
        self._backend = Backend(device, salt=secrets.randbits(32))
        try:
            found = socket.getaddrinfo(device.address.host, device.address.port, type=socket.SOCK_DGRAM)
            self._socket = socket.socket(found[0][0], socket.SOCK_DGRAM)
            self._socket.connect(found[0][4])
        except OSError as error:
            raise AgentError(self._name, str(error.strerror or error)) from error

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def walk(self, column: Oid) -> list[Binding]:
        """All variables below."""
        found: list[Binding] = []
        start = column
        while len(found) <= MAX_VARIABLES:
            answer = self._ask(Pdu(Kind.GET_BULK, 0, (Binding(start),), 0, 25), ANSWER_S)
            for each in answer.bindings:
                if each.value == END_OF_VIEW or each.oid[: len(column)] != column:
                    return found
                if each.oid <= start:
                    raise AgentError(self._name, "its variables are not in order")
                found.append(each)
                start = each.oid
            if not answer.bindings:
                return found
        raise AgentError(self._name, f"more than {MAX_VARIABLES} variables")

    def get(self, oid: Oid) -> bytes:
        """The value of a variable, as an element."""
        return self._ask(Pdu(Kind.GET, 0, (Binding(oid),)), ANSWER_S).bindings[0].value

    def set(self, bindings: tuple[Binding, ...]) -> None:
        """Sets them all, or raises and none is set."""
        self._ask(Pdu(Kind.SET, 0, bindings), SET_S)

    def _ask(self, pdu: Pdu, patience_s: float) -> Pdu:
        wanted = pdu.numbered(self._backend.number())
        for _ in range(TRIES):
            try:
                self._send(wanted)
                until_s = time.monotonic() + patience_s
                while (answer := self._receive(until_s)) is not None and answer.request_id != wanted.request_id:
                    continue
            except OSError as error:
                raise AgentError(self._name, str(error.strerror or error)) from error
            if answer is not None:
                return self._checked(answer)
            # Nothing came, or it told of its time.
            if pdu.kind is Kind.SET and time.monotonic() >= until_s:
                # It may have been carried out: nobody asks for that twice.
                break
        raise AgentError(self._name, "does not answer")

    def _send(self, wanted: Pdu) -> None:
        now_s = time.monotonic()
        if not self._backend.is_known:
            self._socket.send(self._backend.discovery())
            self._receive(now_s + ANSWER_S)
        self._socket.send(self._backend.request(wanted, time.monotonic()))

    def _receive(self, until_s: float) -> Pdu | None:
        while (left_s := until_s - time.monotonic()) > 0:
            self._socket.settimeout(left_s)
            try:
                return self._backend.answered(self._socket.recv(MAX_DATAGRAM), time.monotonic())
            except TimeoutError:
                return None
            except SnmpError:
                continue
        return None

    def _checked(self, answer: Pdu) -> Pdu:
        if not answer.status:
            return answer
        word = Status(answer.status).name.lower() if answer.status in set(Status) else f"error {answer.status}"
        where = f" at variable {answer.index}" if answer.index else ""
        raise AgentError(self._name, f"refuses: {word.replace('_', ' ')}{where}", answer.status)
