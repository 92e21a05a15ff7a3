"""Whether the hub can be asked is known at once."""

import socket

import pytest

from planner.chain import hub
from planner.chain.hub import hub_is_reachable


@pytest.fixture
def network(monkeypatch):
    """A machine without proxy; the list says which names it looks up."""
    asked = []
    monkeypatch.setattr(hub, "getproxies", dict)
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub.constants, "ENDPOINT", "https://hub.example")
    monkeypatch.setattr(
        hub.socket, "getaddrinfo", lambda name, port: asked.append((name, port))
    )
    return asked


def test_a_hub_whose_name_is_known_can_be_asked(network):
    assert hub_is_reachable()
    assert network == [("hub.example", 443)]


def test_a_hub_whose_name_is_unknown_cannot(network, monkeypatch):
    def fail(name, port):
        raise socket.gaierror

    monkeypatch.setattr(hub.socket, "getaddrinfo", fail)
    assert not hub_is_reachable()


def test_behind_a_proxy_names_are_not_looked_up(network, monkeypatch):
    monkeypatch.setattr(hub, "getproxies", lambda: {"https": "http://proxy:3128"})
    assert hub_is_reachable()
    assert not network


def test_a_hub_that_is_switched_off_is_not_looked_up(network, monkeypatch):
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    assert not hub_is_reachable()
    assert not network
