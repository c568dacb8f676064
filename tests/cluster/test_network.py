"""Where a ring meets and which interface gloo binds to: on one node, and between several."""

import os

import pytest

from longdoc.cluster import network
from longdoc.cluster.messages import Place
from longdoc.cluster.network import bind_gloo, interface_of, meeting_host

INTERFACES = {
    "lo": ["127.0.0.1", "::1"],
    "eth0": ["10.0.0.5", "fe80::1%eth0"],
    "ib0": ["192.168.7.5"],
}


def test_a_ring_on_one_node_meets_on_loopback_and_one_on_several_where_its_first_rank_is():
    assert meeting_host(["10.0.0.5", "10.0.0.5"], ["a", "a"]) == "127.0.0.1"
    assert meeting_host(["10.0.0.5", "10.0.0.6"], ["a", "b"]) == "10.0.0.5"


@pytest.mark.parametrize(
    ("host", "interface"),
    [
        ("10.0.0.5", "eth0"),
        ("192.168.7.5", "ib0"),
        ("fe80::1", "eth0"),
        ("127.0.0.3", network.LOOPBACK_INTERFACE),
        ("172.16.0.9", None),
    ],
)
def test_gloo_binds_to_the_interface_of_rays_address(host, interface):
    assert interface_of(host, INTERFACES) == interface


def test_on_one_node_loopback_wins_and_between_nodes_an_operators_choice_does(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    bind_gloo("127.0.0.3", is_one_node=False)
    assert os.environ["GLOO_SOCKET_IFNAME"] == "ib0"
    bind_gloo("10.0.0.5", is_one_node=True)
    assert os.environ["GLOO_SOCKET_IFNAME"] == network.LOOPBACK_INTERFACE


def test_between_nodes_gloo_is_left_alone_where_no_interface_has_the_address(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    monkeypatch.setattr(network.psutil, "net_if_addrs", dict)
    bind_gloo("203.0.113.1", is_one_node=False)
    assert "GLOO_SOCKET_IFNAME" not in os.environ


def test_ranks_are_ordered_by_node_and_then_by_gpu_number():
    places = [
        Place(node_id=node, gpu=(len(gpu), gpu), host="h")
        for node, gpu in [("b", "0"), ("a", "10"), ("a", "9"), ("a", "")]
    ]
    assert [(place.node_id, place.gpu[1]) for place in sorted(places)] == [
        ("a", ""),
        ("a", "9"),
        ("a", "10"),
        ("b", "0"),
    ]
