"""The images and the compose file, as far as they can be judged without Docker."""

from __future__ import annotations

import difflib
import fnmatch
import http.server
import re
import subprocess
import sys
import threading
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import yaml

from service import gunicorn_config
from service.demo.build import RECIPES
from service.doctor.findings import Verdict
from service.doctor.gunicorn_values import gunicorn_values
from service.doctor.nginx import check_nginx
from service.doctor.nginx_directives import time_s
from service.settings import Settings
from tests.deploy.proxy import SHIPPED, configure, needs_nginx, run_nginx
from tests.system.conftest import ROOT, free_port

DOCKER = ROOT / "deploy" / "docker"
COMPOSE = DOCKER / "docker-compose.yml"
DOCKERFILES = ("Dockerfile", "Dockerfile.cuda")
PROGRAMS = Path(sys.executable).parent
SETTINGS = {name.upper() for name in Settings.model_fields}
# What Python, the shell and NVIDIA's toolkit read.
OTHERS = {"PATH", "HOME", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "NVIDIA_VISIBLE_DEVICES"}
OTHERS |= {"NVIDIA_DRIVER_CAPABILITIES"}


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


def serving(services: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: service for name, service in services.items() if name.startswith("serving-")}


def last_stage(dockerfile: str) -> str:
    return (DOCKER / dockerfile).read_text().rpartition("\nFROM ")[2]


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_the_linter_has_nothing_to_say(dockerfile: str):
    told = subprocess.run([PROGRAMS / "hadolint", DOCKER / dockerfile], capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stdout) == (0, "")


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_the_image_has_no_tools_and_no_root(dockerfile: str):
    last = last_stage(dockerfile)
    assert not re.search(r"apt-get|gcc|pip install", last)
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert "HEALTHCHECK" in last
    assert "uninstall --yes --root-user-action ignore setuptools wheel pip" in last


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_every_variable_of_the_image_has_a_meaning(dockerfile: str):
    env = re.search(r"^ENV (.*?[^\\])$", last_stage(dockerfile), re.MULTILINE | re.DOTALL)[1]
    given = dict(part.split("=", 1) for part in env.replace("\\\n", "").split())
    assert set(given) <= SETTINGS | OTHERS
    Settings(**{name: value for name, value in given.items() if name in SETTINGS})


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_what_is_copied_is_there_and_not_ignored(dockerfile: str):
    text = (DOCKER / dockerfile).read_text()
    sources = [
        source for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE) for source in line.split()
    ]
    kept = re.findall(r"^!(.*)$", (DOCKER / f"{dockerfile}.dockerignore").read_text(), re.MULTILINE)
    assert len(sources) >= 8
    assert set(sources) == set(kept)
    assert all((ROOT / source).exists() for source in sources)


def test_the_two_images_differ_in_what_a_card_needs_only():
    cpu, cuda = ((DOCKER / name).read_text().splitlines() for name in DOCKERFILES)
    changed = [line for line in difflib.ndiff(cpu, cuda) if line[:2] in ("- ", "+ ")]
    about = (
        "*# *",
        "*NVIDIA_*",
        "*DEVICE=cuda*",
        "*WEB_WORKERS=1*",
        "*EXTRAS=*",
        "*PIP_EXTRA_INDEX_URL*",
        "*--start-period*",
    )
    assert not [line for line in changed if not any(fnmatch.fnmatch(line, each) for each in about)]


def test_the_compose_file_follows_the_specification():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stdout + told.stderr


def test_the_compose_file_names_only_paths_that_are_there(services: dict[str, dict[str, Any]]):
    named_volumes = yaml.safe_load(COMPOSE.read_text())["volumes"]
    sources = {volume.rpartition(":/")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert len(sources) >= 10
    for source in sources - set(named_volumes):
        path = (DOCKER / re.sub(r"\$\{\w+:-(.*)\}", r"\1", source)).resolve()
        if path.parent.name == "demo-models":  # made by `make demo`
            assert path.name in RECIPES
        else:
            assert path.exists(), source
    for service in serving(services).values():
        assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).exists()


def test_the_compose_file_names_only_settings(services: dict[str, dict[str, Any]]):
    assert len(serving(services)) == 3
    for service in serving(services).values():
        given = {name: str(value) for name, value in service["environment"].items()}
        assert set(given) <= SETTINGS
        settings = Settings(**given)
        assert time_s(service["stop_grace_period"]) > settings.graceful_timeout_s + gunicorn_config.CLOSE_S
        assert settings.bind.endswith(":8000")
    assert time_s(services["nginx"]["stop_grace_period"]) > 40  # proxy_read_timeout


def test_no_service_is_more_than_it_has_to_be(services: dict[str, dict[str, Any]]):
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
    assert not any("ports" in service for service in serving(services).values())


@needs_nginx
def test_nginx_in_compose_leads_to_the_services_of_compose(services: dict[str, dict[str, Any]], tmp_path: Path):
    configure(tmp_path, 1, {})
    for file in (DOCKER / "nginx").iterdir():
        text = file.read_text()
        if file.name.endswith("-servers.conf"):
            hosts = set(re.findall(r"^server ([\w-]+):8000", text, re.MULTILINE))
            assert hosts <= set(serving(services))
            text = re.sub(r"serving-\w+-(\d)", r"127.0.0.\1", text)
        text = text.replace("/run/", f"{tmp_path}/").replace("listen 80 ", f"listen 127.0.0.1:{free_port()} ")
        (tmp_path / "local" / file.name).write_text(text)
    tested = run_nginx(tmp_path, "canary.conf", "-t")
    assert tested.returncode == 0, tested.stderr
    values = gunicorn_values(vars(gunicorn_config), (), {})
    findings = list(check_nginx(tmp_path / "canary.conf", Settings(bind="0.0.0.0:8000"), values))
    assert {finding.verdict for finding in findings} == {Verdict.OK}
    mounted = {volume.split(":")[1] for volume in services["nginx"]["volumes"]}
    included = set(re.findall(r"include (local/\S+);", (SHIPPED / "canary.conf").read_text()))
    assert {f"/etc/nginx/{name}" for name in included} <= mounted


@pytest.mark.parametrize("status, is_ready", [(200, True), (503, False)])
def test_the_health_check_says_what_the_service_says(status: int, is_ready: bool, monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")  # as Docker hands its own to a container

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.timeout = 10  # without a question the thread ends, too
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert healthy().is_ready(f"0.0.0.0:{server.server_port}") is is_ready
        thread.join(10)


def test_the_health_check_fails_where_nobody_answers():
    assert healthy().is_ready(f"127.0.0.1:{free_port()}") is False


def healthy() -> Any:
    spec = spec_from_file_location("healthy", DOCKER / "healthy.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
