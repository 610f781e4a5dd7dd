"""The systemd unit, as far as it can be judged without a system that was started by systemd."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from operator import methodcaller
from pathlib import Path
from types import SimpleNamespace

import pytest

from service import gunicorn_config
from service.doctor.nginx_directives import time_s
from service.server.last_resort import BOOT_ERROR
from service.settings import Settings
from tests.deploy.proxy import SHIPPED
from tests.system.conftest import ROOT, free_port

SYSTEMD = ROOT / "deploy" / "systemd"
UNIT = SYSTEMD / "jitney@.service"
GUARD_S = 30.0

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def values(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)


def settings_of(instance: str) -> dict[str, str]:
    lines = (SYSTEMD / f"{instance}.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit with a program that is there."""
    unit = tmp_path / "jitney@stable.service"
    text = UNIT.read_text()
    assert "ExecStart=/opt/jitney/bin/jitney serve" in text
    unit.write_text(text.replace("/opt/jitney/bin/jitney", str(Path(sys.executable).parent / "jitney")))
    return unit


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", "--no-pager", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=GUARD_S)


@needs_systemd
def test_systemd_understands_every_line(installed: Path):
    told = analyze("verify", "--man=no", installed)
    assert (told.returncode, told.stderr) == (0, "")


@needs_systemd
def test_the_service_is_shut_in_as_far_as_a_network_service_can_be(installed: Path):
    told = analyze("security", "--offline=true", "--threshold=20", installed)
    assert told.returncode == 0, told.stdout + told.stderr


def test_a_stop_gives_requests_the_time_that_gunicorn_gives_them():
    (stop,) = values("TimeoutStopSec")
    graceful_s = Settings.model_fields["graceful_timeout_s"].default
    assert float(stop) > graceful_s + gunicorn_config.CLOSE_S
    assert time_s(stop) < 90  # what systemd itself would wait


def test_a_model_that_cannot_be_loaded_is_not_tried_again():
    assert values("RestartPreventExitStatus") == [str(BOOT_ERROR)]
    assert values("Restart") == ["on-failure"]


@pytest.mark.parametrize("instance", ["stable", "canary"])
def test_the_settings_of_an_instance_are_settings(instance: str):
    given = settings_of(instance)
    Settings(**given)
    of_unit = dict(value.split("=", 1) for value in values("Environment"))
    Settings(**{name: value for name, value in of_unit.items() if name != "HOME"})
    shipped = (SHIPPED / "local" / f"{instance}-servers.conf").read_text()
    assert f"server {given['BIND']} " in shipped


@pytest.mark.system
def test_gunicorn_tells_systemd_when_it_listens_and_ends_when_it_is_told_to(tmp_path: Path):
    model = tmp_path / "model.pkl"
    model.write_bytes(pickle.dumps(SimpleNamespace(predict=methodcaller("sum", axis=1))))
    address = str(tmp_path / "notify")
    mine = {"MODEL_PATH": str(model), "ALLOW_PICKLE": "true", "BIND": f"127.0.0.1:{free_port()}"}
    environ = {**os.environ, **settings_of("stable"), **mine, "NOTIFY_SOCKET": address}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        told.settimeout(GUARD_S)
        told.bind(address)
        program = [sys.executable, "-c", "from service.cli import main; main()"]
        command = [*program, *values("ExecStart")[0].split()[1:]]
        process = subprocess.Popen(command, env=environ, cwd=tmp_path)
        try:
            message, credentials, _, _ = told.recvmsg(4096, socket.CMSG_SPACE(12))
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(GUARD_S) == 0
    assert message.startswith(b"READY=1\n")
    # NotifyAccess=main: systemd hears nobody but the process that it has started.
    assert struct.unpack("3i", credentials[0][2])[0] == process.pid
