"""Ports of the local stack."""

import socket
from pathlib import Path

from cli.stack.ports import HOST, PortClaims, choose_ports, is_free


def test_a_free_preferred_port_is_kept() -> None:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    assert choose_ports(("gateway",), {"gateway": port}) == {"gateway": port}


def test_a_taken_port_is_replaced_by_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not is_free(port)
        chosen = choose_ports(("gateway",), {"gateway": port})["gateway"]
    assert chosen != port


def test_no_two_parts_get_the_same_port() -> None:
    names = tuple(f"part-{n}" for n in range(50))
    assert len(set(choose_ports(names, {}).values())) == len(names)


def test_a_preference_for_a_part_that_does_not_exist_is_ignored() -> None:
    assert set(choose_ports(("a",), {"b": 1})) == {"a"}


def test_of_two_stacks_that_start_at_once_only_one_gets_a_port(tmp_path: Path) -> None:
    """Neither has bound it yet."""
    first, second = PortClaims(tmp_path), PortClaims(tmp_path)
    wanted = choose_ports(("gateway",), {})
    assert choose_ports(("gateway",), wanted, first) == wanted
    assert choose_ports(("gateway",), wanted, second) != wanted
    first.release()
    assert choose_ports(("gateway",), wanted, second) == wanted
    second.release()
