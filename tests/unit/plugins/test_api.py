"""What the short forms of requests ask for, and what they make of refusals."""

import pytest

from hyroads.plugins.api import Place, RequestError, Requests


class Rest(Requests):
    """Notes what is asked; answers or refuses as told."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def request(self, method, path, body=None):
        self.asked.append((method, path, body))
        answer = self.answers.pop(0) if self.answers else {"phase": "done"}
        if isinstance(answer, int):
            raise RequestError(answer, "no")
        return answer


TO = {"node": "a", "technology": "plc"}


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        (lambda n: n.declare_flow({"id": "f"}), ("POST", "/flows", {"id": "f"})),
        (lambda n: n.declare_flow({"id": "f"}, wait=False), ("POST", "/flows?wait=false", {"id": "f"})),
        (lambda n: n.remove_flow("a/b"), ("DELETE", "/flows/a%2Fb", None)),
        (lambda n: n.flow("f"), ("GET", "/flows/f", None)),
        (lambda n: n.handover("tv", Place("a", "plc")), ("POST", "/handovers", {"client": "tv", "to": TO})),
        (
            lambda n: n.handover("tv", Place("a", "plc"), manager="hard", flows=("f",)),
            ("POST", "/handovers", {"client": "tv", "to": TO, "manager": "hard", "flows": ["f"]}),
        ),
        (lambda n: n.ncast("f", 3), ("POST", "/ncasts", {"flow": "f", "copies": 3})),
        (lambda n: n.end_ncast("f"), ("DELETE", "/ncasts/f", None)),
        (lambda n: n.leave_session("s", "10.0.0.1"), ("DELETE", "/sessions/s/participants/10.0.0.1", None)),
        (lambda n: n.reserve("r", "f", 2.0), ("POST", "/reservations", {"id": "r", "flow": "f", "rate_mbps": 2.0})),
        (lambda n: n.end_reservation("r"), ("DELETE", "/reservations/r", None)),
    ],
)
def test_short_forms(call, asked):
    rest = Rest()
    call(rest)
    assert rest.asked == [asked]


def test_a_handover_that_failed_is_an_error():
    with pytest.raises(RequestError, match="it left"):
        Rest({"phase": "failed", "reason": "it left"}).handover("tv", Place("a", "plc"))


JOIN = ("POST", "/sessions/s/participants", {"name": "a"})
OPEN = ("POST", "/sessions", {"id": "s", "group": "239.1.2.3", "participants": ["a"]})


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([{}], [JOIN]),
        ([404, {}], [JOIN, OPEN]),
        # Somebody else opened it meanwhile.
        ([404, 409, {}], [JOIN, OPEN, JOIN]),
    ],
)
def test_who_is_first_opens_the_session(answers, asked):
    rest = Rest(*answers)
    rest.join_session("s", "239.1.2.3", "a")
    assert rest.asked == asked


@pytest.mark.parametrize("answers", [[403], [404, 422], [404, 409, 503]])
def test_other_refusals_of_sessions_are_told(answers):
    with pytest.raises(RequestError) as refused:
        Rest(*answers).join_session("s", "239.1.2.3", "a")
    assert refused.value.status == answers[-1]
