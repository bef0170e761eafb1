"""The compiled kernel equals the reference, and refuses what is not well-formed."""

from __future__ import annotations

import ctypes
import random
from dataclasses import replace

import numpy as np
import pytest
from examples import examples, seeds
from hypothesis import given
from hypothesis import strategies as st

from hyroads.controller import native as package
from hyroads.controller.core import planner, planner_native
from hyroads.controller.core.errors import PlanningError
from hyroads.controller.core.interface_graph import interface_graph
from hyroads.controller.core.netfile import parse
from hyroads.controller.core.planner_native import NativeNetwork
from hyroads.controller.core.tree import TreeQuery, explore
from hyroads.controller.native import planner as library
from hyroads.controller.study import networks as study_networks

KERNEL = library.load_kernel()
RULES = st.sampled_from(("technology", "range", "conflicts", "domains"))

needs_kernel = pytest.mark.skipif(KERNEL is None, reason="the compiled kernel is not built (make native)")


def both(network, query, clients_relay=False):
    graph = interface_graph(network, clients_relay)
    capacities = network.capacities
    native = planner_native.explore(KERNEL, NativeNetwork.of(graph, network.interference), capacities, query)
    return native, explore(graph, network.interference, capacities, query)


@needs_kernel
@examples(400)
@given(
    seed=st.integers(0, 2**32),
    rule=RULES,
    size=st.integers(2, 9),
    technologies=st.integers(1, 4),
    density=st.floats(0.1, 0.9),
    tied=st.booleans(),
    clients=st.booleans(),
    n=st.integers(1, 6),
    depth=st.integers(1, 3),
    arms=st.integers(1, 8),
)
def test_kernel_equals_reference(
    seed, rule, size, technologies, density, tied, clients, n, depth, arms, random_network
):
    """Not nearly: the same paths, order and floats, with ties, dead links and plain clients."""
    network = random_network(
        seed, rule, size=size, technologies=technologies, density=density, tied=tied, clients=clients, dead=True
    )
    if not network.links:
        return
    native, reference = both(network, TreeQuery(0, size - 1, n, depth, arms), clients_relay=seed % 2 == 0)
    assert native == reference


@needs_kernel
@pytest.mark.parametrize("seed", seeds(8))
@pytest.mark.parametrize("kind", [study_networks.office22, study_networks.enterprise, study_networks.residential])
def test_kernel_equals_reference_on_the_networks_of_the_studies(kind, seed):
    rng = random.Random(seed)
    network = kind(rng)
    graph = interface_graph(network)
    source, target = (graph.node(name) for name in study_networks.endpoints(network, rng))
    native, reference = both(network, TreeQuery(source, target, 5, len(network.technologies), 5))
    assert native == reference
    assert native.arms


@needs_kernel
def test_answer_larger_than_the_first_buffer(random_network):
    network = random_network(3, size=14, technologies=4, density=0.6)
    native, reference = both(network, TreeQuery(0, 13, 20, 2, 10_000))
    assert native == reference
    assert sum(len(arm.paths) for arm in native.arms) > 256


@needs_kernel
@pytest.mark.parametrize(
    "damage",
    [
        {"source": np.array([99, 0, 0], dtype=np.int32)},
        {"target": np.array([-1, 0, 0], dtype=np.int32)},
        {"technology": np.array([0, 1], dtype=np.int32)},
        {"group": np.array([0, 1, 7], dtype=np.int32)},
        {"group": np.array([0], dtype=np.int32)},
        {"relays": np.array([1], dtype=np.uint8)},
        {"shared": np.array([], dtype=np.uint8)},
    ],
)
def test_malformed_arrays_are_refused(damage):
    network, graph, capacities = triangle()
    packed = NativeNetwork.of(graph, network.interference)
    packed = replace(packed, structure={**packed.structure, **damage})
    with pytest.raises(PlanningError, match="refused"):
        planner_native.explore(KERNEL, packed, capacities, TreeQuery(0, 2, 5, 2, 5))


@needs_kernel
@pytest.mark.parametrize("capacity_mbps", [float("nan"), float("inf"), -1.0])
def test_capacities_that_are_no_capacities_are_refused(capacity_mbps):
    network, graph, capacities = triangle()
    capacities = capacities.copy()
    capacities[0] = capacity_mbps
    with pytest.raises(PlanningError, match="refused"):
        planner_native.explore(
            KERNEL, NativeNetwork.of(graph, network.interference), capacities, TreeQuery(0, 2, 5, 2, 5)
        )


@needs_kernel
@pytest.mark.parametrize(
    "query",
    [TreeQuery(0, 3, 5, 2, 5), TreeQuery(1, 1, 5, 2, 5), TreeQuery(0, 2, 0, 2, 5), TreeQuery(0, 2, 5, 30, 5)],
)
def test_queries_out_of_range_are_refused(query):
    network, graph, capacities = triangle()
    with pytest.raises(PlanningError, match="refused"):
        planner_native.explore(KERNEL, NativeNetwork.of(graph, network.interference), capacities, query)


@needs_kernel
@pytest.mark.parametrize("rule", ["range", "conflicts"])
def test_malformed_interference_is_refused(rule, random_network):
    network = random_network(5, rule, density=0.8)
    graph, capacities = interface_graph(network), network.capacities
    packed = NativeNetwork.of(graph, network.interference)
    for name in {"range": ["near"], "conflicts": ["offsets", "group"]}[rule]:
        for wrong in (packed.structure[name][:-1], packed.structure[name][::-1].copy()):
            if name == "near" and len(wrong) == len(packed.structure[name]):
                continue  # other bits are another network, not a malformed one
            broken = replace(packed, structure={**packed.structure, name: wrong})
            with pytest.raises(PlanningError, match="refused"):
                planner_native.explore(KERNEL, broken, capacities, TreeQuery(0, 4, 5, 2, 5))


@needs_kernel
def test_null_pointers_and_other_layouts_are_refused():
    call = KERNEL.library.hyroads_plan
    request, answer = library._Request(), library._Answer()
    assert call(None, None) == 2
    assert call(ctypes.byref(request), None) == 2
    assert call(ctypes.byref(request), ctypes.byref(answer)) == 2, "sizes of 0"


def triangle():
    links = [
        {"id": f"{u}{v}-{k}", "from": u, "to": v, "technology": k, "capacity_mbps": c}
        for u, v, k, c in (("a", "b", "plc", 10), ("a", "b", "wifi", 15), ("b", "c", "wifi", 30))
    ]
    nodes = {name: {"role": "ap"} for name in "abc"}
    network = parse({"nodes": nodes, "links": links, "interference": {"rule": "technology"}}, "triangle")
    return network, interface_graph(network), network.capacities


def test_library_is_looked_for_where_it_is_said_to_be(monkeypatch, tmp_path):
    monkeypatch.setenv("HYROADS_NATIVE", str(tmp_path))
    assert package.candidates()[0] == tmp_path / package.LIBRARY
    monkeypatch.setenv("HYROADS_NATIVE", str(tmp_path / "own.so"))
    assert package.candidates()[0] == tmp_path / "own.so"
    monkeypatch.delenv("HYROADS_NATIVE")
    assert all(path.name == package.LIBRARY for path in package.candidates())
    assert len(package.candidates()) == 2


def test_file_that_is_no_library_is_passed_over(monkeypatch, tmp_path):
    broken = tmp_path / package.LIBRARY
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(package, "candidates", lambda: [broken, tmp_path / "missing.so"])
    assert library.load_kernel() is None


@needs_kernel
def test_library_of_another_version_is_passed_over(monkeypatch):
    monkeypatch.setattr(library, "ABI_VERSION", library.ABI_VERSION + 1)
    assert library.load_kernel() is None


def test_without_a_library_the_reference_plans(monkeypatch):
    monkeypatch.setattr(planner, "kernel", lambda: None)
    network, _, _ = triangle()
    assert planner.engine() == "python"
    assert planner.Planner(network).plan("a", "c").multipath.total_mbps == pytest.approx(50 / 3)
