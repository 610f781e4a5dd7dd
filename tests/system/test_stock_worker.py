"""gunicorn's own threaded worker, chosen where the service's own does not do what is configured."""

from __future__ import annotations

import signal
import ssl
import subprocess
import urllib.request

import pytest

pytestmark = pytest.mark.system

ECHO = 0
SAID = "gunicorn's own worker class gthread serves"


def test_the_own_worker_serves_where_nothing_else_is_asked_for(start):
    server = start()
    assert SAID not in server.text()
    assert "Using worker: service.server.worker.Worker" in server.text()


@pytest.mark.parametrize(
    "lines, reason",
    [
        ("def post_request(worker, request, environ, response):\n    pass\n", "post_request"),
        ("proxy_protocol = 'v1'\n", "proxy_protocol"),
        ("import sys\nsys.modules['gunicorn_h1c'] = None\n", "gunicorn_h1c is not installed"),
    ],
)
def test_the_service_works_with_gunicorns_worker_and_says_so(start, tmp_path, lines, reason):
    own = tmp_path / "own.conf.py"
    own.write_text("from service.gunicorn_config import *\n" + lines)
    server = start("-c", str(own))
    assert server.predict([ECHO, 4]).json()["predictions"] == [4]
    (line,) = [line for line in server.text().splitlines() if SAID in line]
    assert reason in line
    server.process.send_signal(signal.SIGHUP)  # the configuration is read anew, and says the same
    server.wait_until(lambda: server.text().count(SAID) == 2 and server.text().count("is ready") == 2)
    assert server.predict([ECHO, 5]).json()["predictions"] == [5]
    assert server.stop() == 0


def test_the_service_works_under_tls(start, tmp_path):
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "1", *files],
        check=True,
        capture_output=True,
    )
    arguments = ["--certfile", str(tmp_path / "cert.pem"), "--keyfile", str(tmp_path / "key.pem")]
    server = start(*arguments, wait=False)
    server.wait_until(lambda: "is ready" in server.text())
    context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    context.check_hostname = False
    url = server.url.replace("http:", "https:") + "/livez"
    with urllib.request.urlopen(url, context=context, timeout=10) as response:
        assert response.status == 200
    assert f"{SAID}, and not Jitney's, which does not do this: TLS" in server.text()
