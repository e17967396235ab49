"""What the author of a ScaledObject may write, and what he is told where it is wrong."""

import pytest
from kbmesh_rpc.errors import InvalidField
from kbmesh_rpc.scaler.trigger import AllowedPeers, Peers, Trigger, parse_peers, parse_peers_list, parse_trigger

HEADLESS = Peers(host="embedder-headless", port=7402)
OTHER = Peers(host="other", port=1)
LISTED = AllowedPeers(listed=(HEADLESS, OTHER), any_name=False)
NONE = AllowedPeers(listed=(), any_name=False)
LOOPBACK = AllowedPeers(listed=(), any_name=True)


def test_a_trigger_with_all_there_is() -> None:
    metadata = {
        "scalerAddress": "embedder:7402",
        "enableTLS": "false",
        "targetTokens": "20000.5",
        "activationTokens": "10",
        "peers": "other:1",
    }
    assert parse_trigger(metadata, LISTED) == Trigger(target_tokens=20000.5, activation_tokens=10, peers=OTHER)


def test_the_settings_say_who_the_replicas_are() -> None:
    trigger = parse_trigger({"targetTokens": "20000"}, LISTED)
    assert trigger == Trigger(target_tokens=20000, activation_tokens=0, peers=HEADLESS)


def test_on_loopback_a_trigger_may_name_anybody() -> None:
    assert parse_trigger({"targetTokens": "1", "peers": "[::1]:7402"}, LOOPBACK).peers == Peers(host="::1", port=7402)


@pytest.mark.parametrize(
    ("metadata", "allowed", "wrong"),
    [
        ({}, LISTED, ["targetTokens"]),
        ({"targetTokens": ""}, LISTED, ["targetTokens"]),
        ({"targetTokens": "many"}, LISTED, ["targetTokens"]),
        ({"targetTokens": "0"}, LISTED, ["targetTokens"]),
        ({"targetTokens": "-5"}, LISTED, ["targetTokens"]),
        ({"targetTokens": "nan"}, LISTED, ["targetTokens"]),
        ({"targetTokens": "inf"}, LISTED, ["targetTokens"]),
        ({"targetTokens": "1", "activationTokens": "-1"}, LISTED, ["activationTokens"]),
        ({"targetToken": "1"}, LISTED, ["targetToken", "targetTokens"]),
        ({"targetTokens": "1"}, NONE, ["peers"]),
        ({"targetTokens": "1"}, LOOPBACK, ["peers"]),
        ({"targetTokens": "1", "peers": "embedder-headless:7402"}, NONE, ["peers"]),
        ({"targetTokens": "1", "peers": "169.254.169.254:80"}, LISTED, ["peers"]),
        ({"targetTokens": "1", "peers": "http://other:1"}, LOOPBACK, ["peers"]),
        ({"targetTokens": "1", "peers": "other"}, LOOPBACK, ["peers"]),
        ({"targetTokens": "1", "peers": "embedder-headless:7402,other:1"}, LISTED, ["peers"]),
        ({"targetTokens": "1", "peers": "embedder-headless:7402,other:1"}, LOOPBACK, ["peers"]),
        ({"targetTokens": "1", "peers": "a,b:1"}, LOOPBACK, ["peers"]),
        ({"targetTokens": "x", "activationTokens": "y"}, LISTED, ["targetTokens", "activationTokens"]),
    ],
)
def test_every_wrong_key_is_named(metadata: dict[str, str], allowed: AllowedPeers, wrong: list[str]) -> None:
    with pytest.raises(InvalidField) as refusal:
        parse_trigger(metadata, allowed)
    assert [violation.field for violation in refusal.value.field_violations] == [
        f"scalerMetadata[{key}]" for key in wrong
    ]


@pytest.mark.parametrize("text", ["", "host", "host:", ":7402", "host:0", "host:65536", "host:7a", "a b:1", "host:²"])
def test_what_is_no_name_with_a_port(text: str) -> None:
    with pytest.raises(ValueError):
        parse_peers(text)


def test_a_list_of_names() -> None:
    assert parse_peers_list(" embedder-headless:7402 , other:1,") == (HEADLESS, OTHER)
    assert parse_peers_list("") == ()
