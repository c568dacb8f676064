"""How the ranks of a ring reach each other: over loopback on one machine, over Ray's own network between several.

Owns the choice of the address where a ring meets and of the interface that gloo binds to. Ray's address of a node is
one that its other nodes reach, where the host's name often leads to loopback and nowhere.
"""

import ipaddress
import os
import sys
from collections.abc import Mapping, Sequence

import psutil

LOOPBACK_HOST = "127.0.0.1"
LOOPBACK_INTERFACE = "lo0" if sys.platform == "darwin" else "lo"
_GLOO_INTERFACE = "GLOO_SOCKET_IFNAME"


def meeting_host(hosts: Sequence[str], node_ids: Sequence[str]) -> str:
    """Where the first rank's node is found by all: ranks in ring order, with Ray's address of each one's node."""
    return LOOPBACK_HOST if len(set(node_ids)) == 1 else hosts[0]


def interface_of(host: str, addresses: Mapping[str, Sequence[str]]) -> str | None:
    """The interface that has an address, by `addresses` of each; loopback has all of its own. None where none has."""
    for interface, own in addresses.items():
        # IPv6 addresses come with their interface behind %.
        if host in {address.partition("%")[0] for address in own}:
            return interface
    return LOOPBACK_INTERFACE if ipaddress.ip_address(host).is_loopback else None


def bind_gloo(own_host: str, *, is_one_node: bool) -> None:
    """Choose gloo's interface for this process, before it meets the others.

    On one node it is loopback, whatever the environment says, because the ring meets there. Between nodes an operator's
    GLOO_SOCKET_IFNAME stands; without one it is the interface of Ray's address, else gloo's own choice.
    """
    if is_one_node:
        os.environ[_GLOO_INTERFACE] = LOOPBACK_INTERFACE
    elif _GLOO_INTERFACE not in os.environ:
        addresses = {name: [entry.address for entry in own] for name, own in psutil.net_if_addrs().items()}
        if (interface := interface_of(own_host, addresses)) is not None:
            os.environ[_GLOO_INTERFACE] = interface
