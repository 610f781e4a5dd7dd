"""What the shipped nginx files say, without a request."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from service import gunicorn_config
from service.doctor.findings import Verdict
from service.doctor.gunicorn_values import gunicorn_values
from service.doctor.nginx import check_nginx
from service.doctor.nginx_directives import size_bytes, time_s
from service.doctor.nginx_file import read_nginx
from service.doctor.nginx_scopes import handovers
from service.settings import Settings
from tests.deploy.proxy import MAIN_FILES, SHIPPED, configure, needs_nginx, run_nginx
from tests.system.conftest import ROOT

VALUES = gunicorn_values(vars(gunicorn_config), (), {})

# What the http block of an nginx may say before a site is read: Debian's, that of nginx.org, and what people add.
YOURS = """
include local/process.conf;
http {
    default_type application/octet-stream;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_timeout 65;
    server_tokens on;
    client_max_body_size 1m;
    client_body_timeout 60s;
    include conf.d/*.conf;
}
"""


def handed_over(main_file: str):
    return handovers(read_nginx(SHIPPED / main_file), None)[0]


@needs_nginx
@pytest.mark.parametrize("main_file", MAIN_FILES)
@pytest.mark.parametrize("server", ["server.conf", "server-tls.conf"])
def test_nginx_takes_the_files_without_a_warning(tmp_path: Path, main_file: str, server: str):
    configure(tmp_path, 1, {})
    if server == "server-tls.conf":
        text = re.sub("(?m)^ssl_certificate.*\n", "", (tmp_path / "local" / server).read_text())
        (tmp_path / "local/server.conf").write_text(text.replace(" ssl ", " "))
    tested = run_nginx(tmp_path, main_file, "-t")
    assert tested.returncode == 0, tested.stderr
    assert "[warn]" not in tested.stderr


@pytest.fixture
def yours(tmp_path: Path) -> Path:
    """An nginx that is there already, with the site that docs/integrating.md shows."""
    configure(tmp_path, 1, {})
    shown = (ROOT / "docs/integrating.md").read_text(encoding="utf-8")
    (site,) = re.findall("(?ms)^```nginx\n(.*?)^```$", shown)
    site = re.sub("(?m)^ *(listen|server_name|access_log) .*\n", "", site)
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d/jitney.conf").write_text(
        site.replace("server {\n", "server {\n    include local/server.conf;\n")
    )
    (tmp_path / "yours.conf").write_text(YOURS)
    return tmp_path


@needs_nginx
def test_the_pieces_fit_into_an_nginx_that_has_said_some_of_it_already(yours: Path):
    tested = run_nginx(yours, "yours.conf", "-t")
    assert tested.returncode == 0, tested.stderr
    assert "[warn]" not in tested.stderr


def test_the_doctor_finds_nothing_wrong_with_a_site_made_of_the_pieces(yours: Path):
    findings = list(check_nginx(yours / "yours.conf", Settings(), VALUES))
    assert not [finding for finding in findings if finding.verdict is not Verdict.OK]
    assert len(findings) >= 6


@pytest.mark.parametrize(
    "main_file, bind",
    [
        ("nginx.conf", "127.0.0.1:8000"),
        ("replicas.conf", "127.0.0.1:8000"),
        ("replicas.conf", "127.0.0.1:8001"),
        ("canary.conf", "127.0.0.1:8000"),
        ("canary.conf", "127.0.0.1:8001"),
    ],
)
def test_the_doctor_finds_nothing_wrong(main_file: str, bind: str):
    findings = list(check_nginx(SHIPPED / main_file, Settings(bind=bind), VALUES))
    assert not [finding for finding in findings if finding.verdict is not Verdict.OK]
    assert len(findings) >= 6


@pytest.mark.parametrize("main_file", MAIN_FILES)
def test_bodies_have_the_same_limit_as_in_the_service(main_file: str):
    for here in handed_over(main_file):
        (size,) = here.value("client_max_body_size")
        assert size_bytes(size) == Settings.model_fields["max_body_bytes"].default


@pytest.mark.parametrize("main_file", MAIN_FILES)
def test_whoever_waits_for_somebody_waits_longer(main_file: str):
    settings = Settings()
    for here in handed_over(main_file):
        (read_timeout,) = here.value("proxy_read_timeout")
        request_s, stop_s = settings.request_timeout_ms / 1000, VALUES.graceful_timeout_s
        assert settings.max_batch_latency_ms / 1000 < request_s < stop_s < time_s(read_timeout)
        (idle,) = here.upstream.named("keepalive_timeout")
        assert time_s(idle.args[0]) < VALUES.keepalive_s


def test_every_file_is_used():
    text = "".join((SHIPPED / name).read_text() for name in MAIN_FILES)
    for file in SHIPPED.glob("*/*.conf"):
        name = file.relative_to(SHIPPED).as_posix()
        assert f"include {name};" in text or name == "local/server-tls.conf"
    files = {file.relative_to(SHIPPED).as_posix() for file in SHIPPED.glob("*/*.conf")}
    assert set(re.findall(r"include (\S+);", text)) < files
