"""Interference domains: which links can't transmit at the same time (docs/reference/network-file.md).

Four rules (a fifth is in ``carrier_sensing_rule``), one class each, behind one protocol. Links are addressed by their
index into ``Network.links``. Every rule is reflexive (a link contends with itself) and symmetric (l in I_m iff m in
I_l). The rules ``technology`` and ``range`` relate only links of one technology, and links of an *unshared* technology
(full-duplex Ethernet) contend with nothing but themselves; the explicit rules say exactly what the user wrote, across
technologies too.

Nothing here builds an L x L structure unless :meth:`Interference.contention_matrix` is called: 200 nodes with three
technologies have some 25 000 links and up to 2e8 contending pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .network import Link, Node

if TYPE_CHECKING:
    from scipy import sparse

IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Cliques:
    """Links contend iff they are of one class: ``class_of[L]``, classes numbered from 0 in order of appearance."""

    class_of: IntArray


@dataclass(frozen=True, eq=False)
class NodeRanges:
    """Links contend iff they are of one medium and an end of one is near an end of the other.

    ``medium_of[L]`` numbers the shared technologies from 0, -1 marks an unshared link (contends with itself only);
    ``source[L]`` and ``target[L]`` are node numbers; bit ``v % 64`` of ``near[k, u, v // 64]`` says that nodes u and
    v are in range on medium k. ``near`` is symmetric and reflexive.
    """

    medium_of: IntArray
    source: IntArray
    target: IntArray
    near: NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Explicit lists in CSR form: link l contends with ``indices[indptr[l]:indptr[l + 1]]``, sorted, l included."""

    indptr: NDArray[np.int64]
    indices: IntArray


Compact = Cliques | NodeRanges | Neighbours


class Interference(Protocol):
    """What algorithms may ask of an interference rule."""

    @property
    def link_count(self) -> int:
        """Number of links L."""

    def domain(self, link: int) -> IntArray:
        """I_l: indices of the links that contend with ``link``, itself included, sorted; read-only."""

    def contends(self, first: int, second: int) -> bool:
        """Whether the two links can't transmit at the same time."""

    def contention_matrix(self) -> sparse.csr_matrix[np.float64]:
        """The symmetric L x L matrix of zeros and ones (float64), ones on the diagonal."""

    def compact(self) -> Compact:
        """The same relation in the smallest form, for native code."""

    def classes(self) -> IntArray:
        """A class number per link, from 0: links of one class have equal domains (hence equal airtime rows)."""

    def declaration(self) -> dict[str, Any]:
        """The section ``interference`` of a network file that declares this rule."""


class _CliqueRule:
    """Common part of rules under which contention is an equivalence: links contend iff of one class."""

    def __init__(self, class_of: Sequence[int] | IntArray) -> None:
        self._class_of = _frozen(np.asarray(class_of, dtype=np.int32))

    @property
    def link_count(self) -> int:
        return len(self._class_of)

    @cached_property
    def _members(self) -> list[IntArray]:
        count = int(self._class_of.max(initial=-1)) + 1
        order = np.argsort(self._class_of, kind="stable").astype(np.int32)
        bounds = np.searchsorted(self._class_of[order], np.arange(1, count))
        return [_frozen(part) for part in np.split(order, bounds)]

    def domain(self, link: int) -> IntArray:
        return self._members[int(self._class_of[link])]

    def contends(self, first: int, second: int) -> bool:
        return bool(self._class_of[first] == self._class_of[second])

    def contention_matrix(self) -> sparse.csr_matrix[np.float64]:
        rows, count = np.arange(self.link_count), int(self._class_of.max(initial=0)) + 1
        return _product(_csr((np.ones(len(rows)), (rows, self._class_of)), shape=(len(rows), count)))

    def compact(self) -> Compact:
        return Cliques(self._class_of)

    def classes(self) -> IntArray:
        return self._class_of


class TechnologyInterference(_CliqueRule):
    """Rule ``technology``: every link of a shared technology contends with every other (multi-complete)."""

    def __init__(self, links: Sequence[Link], unshared: frozenset[str] = frozenset()) -> None:
        keys = (i if link.technology in unshared else link.technology for i, link in enumerate(links))
        super().__init__(_numbered(keys))

    def declaration(self) -> dict[str, Any]:
        """See :class:`Interference`."""
        return {"rule": "technology"}


class NearInterference:
    """Common part of rules under which links of one technology contend if an end of one is near an end of the other.

    ``number`` numbers the nodes, ``media`` lists the shared technologies and ``near[k, u, v]`` says which nodes are
    near each other on medium k; it must be symmetric and reflexive.
    """

    def __init__(self, number: Mapping[str, int], links: Sequence[Link], media: Sequence[str], near: BoolArray) -> None:
        medium = {k: i for i, k in enumerate(media)}
        self._medium_of = _frozen(np.array([medium.get(link.technology, -1) for link in links], dtype=np.int32))
        self._source = _frozen(np.array([number[link.source] for link in links], dtype=np.int32))
        self._target = _frozen(np.array([number[link.target] for link in links], dtype=np.int32))
        self._near = near

    @property
    def link_count(self) -> int:
        """See :class:`Interference`."""
        return len(self._medium_of)

    @cached_property
    def _links_of_medium(self) -> list[IntArray]:
        return [np.flatnonzero(self._medium_of == k).astype(np.int32) for k in range(len(self._near))]

    def domain(self, link: int) -> IntArray:
        """See :class:`Interference`; O(links of the technology)."""
        medium = int(self._medium_of[link])
        if medium < 0:
            return _frozen(np.array([link], dtype=np.int32))
        near = self._near[medium]
        touched = near[self._source[link]] | near[self._target[link]]
        mine = self._links_of_medium[medium]
        return _frozen(mine[touched[self._source[mine]] | touched[self._target[mine]]])

    def contends(self, first: int, second: int) -> bool:
        """See :class:`Interference`."""
        medium = int(self._medium_of[first])
        if medium < 0 or medium != self._medium_of[second]:
            return first == second
        near = self._near[medium]
        ends = (int(self._source[second]), int(self._target[second]))
        return bool(near[self._source[first], ends].any() or near[self._target[first], ends].any())

    def contention_matrix(self) -> sparse.csr_matrix[np.float64]:
        """See :class:`Interference`."""
        total = _csr((self.link_count, self.link_count))
        for medium, mine in enumerate(self._links_of_medium):
            ends = self._ends(mine)
            total = total + ends @ _csr(self._near[medium].astype(float)) @ ends.T
        return _ones(total + _identity(self.link_count))

    def _ends(self, links: IntArray) -> sparse.csr_matrix[np.float64]:
        """L x N incidence of the given links with their two end nodes."""
        rows = np.concatenate([links, links])
        columns = np.concatenate([self._source[links], self._target[links]])
        shape = (self.link_count, self._near.shape[1])
        return _csr((np.ones(len(rows)), (rows, columns)), shape=shape)

    def compact(self) -> Compact:
        """See :class:`Interference`."""
        return NodeRanges(self._medium_of, self._source, self._target, _bitset(self._near))

    def classes(self) -> IntArray:
        """See :class:`Interference`: links between the same two nodes on one technology have the same domain."""
        pairs = zip(self._medium_of.tolist(), self._source.tolist(), self._target.tolist(), strict=True)
        keys = (i if k < 0 else (k, min(u, v), max(u, v)) for i, (k, u, v) in enumerate(pairs))
        return np.asarray(_numbered(keys), dtype=np.int32)


class RangeInterference(NearInterference):
    """Rule ``range``: links of one technology contend if an end of one is within range of an end of the other.

    Ends closer than ``ranges_m[technology]`` metres (bound included) are in range; a node is in range of itself, so
    links that share a node contend even without positions. This is the geometric rule of the thesis's simulations.
    """

    def __init__(
        self,
        nodes: Mapping[str, Node],
        links: Sequence[Link],
        ranges_m: Mapping[str, float],
        unshared: frozenset[str] = frozenset(),
    ) -> None:
        media = [k for k in dict.fromkeys(link.technology for link in links) if k not in unshared]
        near = _near(list(nodes.values()), [ranges_m[k] for k in media])
        super().__init__({node: i for i, node in enumerate(nodes)}, links, media, near)
        self._ranges_m = dict(ranges_m)

    def declaration(self) -> dict[str, Any]:
        """See :class:`Interference`."""
        return {"rule": "range", "ranges_m": dict(self._ranges_m)}


class _ExplicitRule:
    """Common part of the rules that hold the relation as a sparse matrix."""

    def __init__(self, matrix: sparse.csr_matrix[np.float64]) -> None:
        self._matrix = _ones(matrix + matrix.T + _identity(matrix.shape[0]))
        self._indices = _frozen(self._matrix.indices.astype(np.int32))
        self._indptr = _frozen(self._matrix.indptr.astype(np.int64))

    @property
    def link_count(self) -> int:
        return int(self._matrix.shape[0])

    def domain(self, link: int) -> IntArray:
        return self._indices[self._indptr[link] : self._indptr[link + 1]]

    def contends(self, first: int, second: int) -> bool:
        mine = self.domain(first)
        at = int(np.searchsorted(mine, second))
        return at < len(mine) and int(mine[at]) == second

    def contention_matrix(self) -> sparse.csr_matrix[np.float64]:
        return self._matrix.copy()

    def compact(self) -> Compact:
        return Neighbours(self._indptr, self._indices)

    def classes(self) -> IntArray:
        keys = (self.domain(link).tobytes() for link in range(self.link_count))
        return np.asarray(_numbered(keys), dtype=np.int32)


class ConflictInterference(_ExplicitRule):
    """Rule ``conflicts``: link id -> ids of the links it conflicts with; the symmetric closure is taken."""

    def __init__(self, links: Sequence[Link], conflicts: Mapping[str, Iterable[str]]) -> None:
        index = {link.id: i for i, link in enumerate(links)}
        self._conflicts = {link: tuple(others) for link, others in conflicts.items()}
        pairs = [(index[link], index[other]) for link, others in self._conflicts.items() for other in others]
        super().__init__(ones_at(pairs, (len(links), len(links))))

    def declaration(self) -> dict[str, Any]:
        """See :class:`Interference`."""
        return {"conflicts": {link: list(others) for link, others in self._conflicts.items()}}


class ExplicitInterference(_ExplicitRule):
    """Rule ``conflicts`` from a matrix that is not 0 where links contend; the symmetric closure is taken."""

    def __init__(self, links: Sequence[Link], matrix: sparse.csr_matrix[np.float64]) -> None:
        super().__init__(matrix)
        self._ids = tuple(link.id for link in links)

    def declaration(self) -> dict[str, Any]:
        """See :class:`Interference`; each pair once."""
        return conflicts_document(self, self._ids)


class DisjointDomains(_CliqueRule):
    """Rule ``domains`` if no link is in two of them: contention is an equivalence, whatever the sizes."""

    def __init__(self, links: Sequence[Link], domains: Sequence[Sequence[str]]) -> None:
        self._domains = tuple(tuple(domain) for domain in domains)
        domain_of = {link: d for d, domain in enumerate(self._domains) for link in domain}
        # A link outside all domains is a class of its own: its id can't equal a domain's number.
        super().__init__(_numbered(domain_of.get(link.id, link.id) for link in links))

    def declaration(self) -> dict[str, Any]:
        """See :class:`Interference`."""
        return {"domains": [list(domain) for domain in self._domains]}


class OverlappingDomains(_ExplicitRule):
    """Rule ``domains`` in general: links contend iff some domain has both."""

    def __init__(self, links: Sequence[Link], domains: Sequence[Sequence[str]]) -> None:
        index = {link.id: i for i, link in enumerate(links)}
        self._domains = tuple(tuple(domain) for domain in domains)
        members = [(index[link], d) for d, domain in enumerate(self._domains) for link in domain]
        super().__init__(_product(ones_at(members, (len(links), max(1, len(self._domains))))))

    def declaration(self) -> dict[str, Any]:
        """See :class:`Interference`."""
        return {"domains": [list(domain) for domain in self._domains]}


def domain_interference(links: Sequence[Link], domains: Sequence[Sequence[str]]) -> Interference:
    """Rule ``domains``: explicit cliques of link ids; a link in none of them contends with itself only."""
    members = [link for domain in domains for link in set(domain)]
    rule = DisjointDomains if len(members) == len(set(members)) else OverlappingDomains
    return rule(links, domains)


def conflicts_document(rule: Interference, ids: Sequence[str]) -> dict[str, Any]:
    """The rule ``conflicts`` that declares the same relation among links of these ids, each pair once."""
    pairs = {
        mine: [ids[other] for other in rule.domain(link).tolist() if other > link] for link, mine in enumerate(ids)
    }
    return {"conflicts": {link: others for link, others in pairs.items() if others}}


def _numbered(keys: Iterable[object]) -> list[int]:
    """Number equal keys equally, from 0 in order of first appearance."""
    numbers: dict[object, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _csr(entries: Any, shape: tuple[int, int] | None = None) -> sparse.csr_matrix[np.float64]:
    """A sparse matrix. SciPy takes 0.3 s of CPU to import, which a command that only checks a file need not spend."""
    from scipy import sparse

    return sparse.csr_matrix(entries, shape=shape, dtype=float)


def ones_at(ones: Sequence[tuple[int, ...]], shape: tuple[int, int]) -> sparse.csr_matrix[np.float64]:
    """A sparse matrix of this shape: ones at these (row, column), else zeros."""
    rows, columns = zip(*ones, strict=True) if ones else ((), ())
    return _csr((np.ones(len(ones)), (rows, columns)), shape=shape)


def _identity(size: int) -> sparse.csr_matrix[np.float64]:
    return _csr((np.ones(size), (np.arange(size), np.arange(size))), shape=(size, size))


def _product(incidence: sparse.csr_matrix[np.float64]) -> sparse.csr_matrix[np.float64]:
    return _ones(incidence @ incidence.T)


def _ones(matrix: Any) -> sparse.csr_matrix[np.float64]:
    """The pattern of a non-negative matrix as sorted CSR of ones."""
    result: sparse.csr_matrix[np.float64] = _csr(matrix)
    result.eliminate_zeros()
    result.sort_indices()
    result.data = np.ones_like(result.data)
    return result


def _near(nodes: Sequence[Node], ranges_m: Sequence[float]) -> BoolArray:
    """K x N x N: nodes in range of each other per medium; a node without position is near itself only."""
    nowhere = (np.nan, np.nan)
    positions = np.array([node.position_m or nowhere for node in nodes], dtype=float).reshape(len(nodes), 2)
    delta = positions[:, None, :] - positions[None, :, :]
    distance_m = np.hypot(delta[..., 0], delta[..., 1])
    # Rounding of a distance that is exactly the range must not decide: the bound counts as in range.
    near = [distance_m <= range_m * (1 + 1e-12) for range_m in ranges_m]
    identity = np.eye(len(nodes), dtype=bool)
    return np.array([matrix | identity for matrix in near], dtype=bool).reshape(len(ranges_m), len(nodes), len(nodes))


def _bitset(near: BoolArray) -> NDArray[np.uint64]:
    """Pack the last axis into 64-bit words, bit v % 64 of word v // 64."""
    padded = np.pad(near, ((0, 0), (0, 0), (0, -near.shape[2] % 64)))
    packed = np.packbits(padded, axis=2, bitorder="little")
    return packed.view(np.dtype("<u8")).astype(np.uint64)
