"""What `deploy/README.md` tells people to copy, run or read is there."""

from __future__ import annotations

import re

from tests.system.conftest import ROOT

DEPLOY = ROOT / "deploy"
README = (DEPLOY / "README.md").read_text(encoding="utf-8")


def test_every_file_that_is_named_is_there():
    named = re.findall(r"`((?:nginx|systemd|docker|jitney|local)/[\w./@-]+)`", README)
    for name in named:
        assert (DEPLOY / name).exists() or (DEPLOY / "nginx" / name).exists(), name
    assert len(named) >= 8


def test_every_link_leads_to_a_file():
    for target in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (DEPLOY / target).exists(), target


def test_every_path_in_a_command_is_there():
    commands = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    paths = {word for command in commands for word in re.findall(r"(?<![\w/])deploy/[\w./@-]+", command)}
    assert len(paths) >= 7
    assert all((ROOT / path).exists() for path in paths)
