"""What the user writes for another machine, before ssh sees it."""

from __future__ import annotations

import pytest
from quicksand.base.errors import ConfigError
from quicksand.remote.destination import Destination

from tests.each import each


@each(
    ("text", "host", "user", "port"),
    [
        ("ssh://box", "box", "", 0),
        ("ssh://me@box", "box", "me", 0),
        ("ssh://me@box.example.org:2222", "box.example.org", "me", 2222),
        ("ssh://me@[fe80::1%eth0]:22", "fe80::1%eth0", "me", 22),
        ("ssh://[::1]", "::1", "", 0),
        ("ssh://a@b@box/", "box", "a@b", 0),
    ],
)
def test_an_address_has_a_host_and_perhaps_a_user_and_a_port(
    text: str, host: str, user: str, port: int
) -> None:
    found = Destination.parse(text)
    assert (found.host, found.user, found.port) == (host, user, port)
    assert Destination.parse(str(found)) == found


@each(
    "text",
    [
        "",
        "box",
        "http://box",
        "ssh://",
        "ssh://-oProxyCommand=id",
        "ssh://-l@box",
        "ssh://@box",
        "ssh://me@",
        "ssh://box:0",
        "ssh://box:65536",
        "ssh://box:0000022",
        "ssh://box:²",
        "ssh://box:99999999999999999999",
        "ssh://box:",
        "ssh://b ox",
        "ssh://box;id",
        "ssh://$(id)@box",
        "ssh://`id`",
        "ssh://box\n",
        "ssh://[::1",
        "ssh://me@box/path",
    ],
)
def test_what_ssh_or_a_shell_could_misunderstand_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Destination.parse(text)
