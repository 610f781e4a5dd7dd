"""The environments of peers, made here without anything that would have to be fetched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.peers.environments import Environment, InstallFailed, environment_for, own_environment

pytestmark = pytest.mark.system


def said_by(environment: Environment, code: str) -> str:
    done = subprocess.run([environment.python, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def pins_in(directory: Path, text: str) -> Path:
    (directory / "some_peer.txt").write_text(text)
    return directory / "some_peer.txt"


def test_it_shares_the_large_packages_but_its_own_come_first_and_are_its_own(tmp_path):
    environment = environment_for(pins_in(tmp_path, "# nothing\n"), tmp_path / "environments")
    where = "import numpy; print(numpy.__file__)"
    assert said_by(environment, where) == said_by(own_environment(), where)
    assert said_by(environment, "import sys; print(sys.prefix)") == str(environment.directory)
    (environment.site / "orjson.py").write_text("WHOSE = 'its own'\n")
    assert said_by(environment, "import orjson; print(orjson.WHOSE)") == "its own"
    assert said_by(own_environment(), "import orjson; print(hasattr(orjson, 'WHOSE'))") == "False"
    assert environment.version("numpy") == own_environment().version("numpy") != ""
    assert environment.version("no-such-package") == ""


def test_it_is_made_once_and_again_when_its_pins_have_changed(tmp_path):
    def left_behind(text: str) -> bool:
        environment = environment_for(pins_in(tmp_path, text), tmp_path / "environments")
        was_there = (environment.directory / "left").exists()
        (environment.directory / "left").touch()
        return was_there

    assert [left_behind("# one\n"), left_behind("# one\n"), left_behind("# other\n")] == [False, True, False]


def test_what_cannot_be_installed_is_said_and_tried_again(tmp_path):
    pins = pins_in(tmp_path, "--no-index\nno-such-package==1\n")
    for _ in range(2):
        with pytest.raises(InstallFailed, match=r"cannot be installed: .*no-such-package==1"):
            environment_for(pins, tmp_path / "environments")


def test_an_interpreter_that_is_none_is_a_reason_too(tmp_path):
    with pytest.raises(InstallFailed, match="cannot be installed"):
        environment_for(pins_in(tmp_path, ""), tmp_path / "environments", sys.executable + "-none")
