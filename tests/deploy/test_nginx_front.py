"""One server behind nginx: what clients see, and what they cannot do."""

from __future__ import annotations

import http.client
import json
import pickle
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from operator import methodcaller
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests

from tests.deploy.proxy import GUARD_S, SHIPPED, Proxy, address, needs_nginx, proxying, raw, wait_until
from tests.system.conftest import Server, free_port, starting

pytestmark = [pytest.mark.system, needs_nginx]

JSON = {"Content-Type": "application/json"}
ECHO, SLEEP = 0, 3
REQUEST_TIMEOUT_MS = 5000
MAX_BODY_BYTES = 16 * 1024 * 1024
# What nginx 1.22 has a page for; after 408 it closes the connection instead.
NGINX_PAGES = [*range(400, 407), *range(409, 417), 421, 429, *range(500, 506), 507]
PROBLEM_KEYS = ["type", "title", "status", "detail", "request_id"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with starting(tmp_path_factory.mktemp("server")) as start:
        # Fewer threads than there are slow clients in a test.
        yield start(REQUEST_TIMEOUT_MS=REQUEST_TIMEOUT_MS, THREADS=8, MAX_BATCH_SIZE=4)


@pytest.fixture(scope="module")
def proxy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with in_front_of([server.url], tmp_path_factory.mktemp("nginx")) as running:
        yield running


@contextmanager
def in_front_of(urls: list[str], home: Path, changes: dict[str, dict[str, str]] | None = None) -> Iterator[Proxy]:
    with proxying(home, "nginx.conf", {"servers.conf": [address(url) for url in urls]}, changes) as running:
        yield running


def assert_problem(answer: requests.Response, status: int) -> None:
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    body = answer.json()
    assert list(body)[:5] == PROBLEM_KEYS
    assert (body["type"], body["status"]) == ("about:blank", status)
    assert body["request_id"] == answer.headers["X-Request-ID"]


def test_a_prediction_passes_with_its_headers(proxy: Proxy):
    answer = proxy.predict([ECHO, 5.0], headers={"X-Request-ID": "from-the-client"})
    assert (answer.status_code, answer.json()["predictions"]) == (200, [5.0])
    assert answer.headers["X-Request-ID"] == "from-the-client"
    assert answer.headers["X-Model-Version"] == "1"
    assert proxy.get("/healthz").status_code == 200


def test_an_error_of_the_service_passes_as_it_is(proxy: Proxy):
    answer = requests.post(f"{proxy.url}/predict", json={"instances": [[True]]}, timeout=GUARD_S)
    assert_problem(answer, 422)
    assert answer.json()["errors"]
    assert_problem(proxy.get("/nowhere"), 404)


def test_an_odd_request_id_is_replaced_by_the_same_one_everywhere(proxy: Proxy):
    answer = proxy.predict([ECHO, 1.0], headers={"X-Request-ID": "two words"})
    request_id = answer.headers["X-Request-ID"]
    assert request_id != "two words"
    wait_until(lambda: request_id in {line["request_id"] for line in proxy.logged()}, "the line of nginx")


@pytest.mark.parametrize("path", ["/metrics", "/%6detrics", "/healthz", "/v2/repository/index"])
def test_the_log_of_nginx_names_the_path_that_was_sent_and_no_query(proxy: Proxy, path: str):
    request_id = uuid.uuid4().hex
    ask_raw(proxy, b"GET", f"{path}?secret=1", f"X-Request-ID: {request_id}\r\n".encode())
    wait_until(lambda: request_id in {line["request_id"] for line in proxy.logged()}, "the line of nginx")
    (line,) = (line for line in proxy.logged() if line["request_id"] == request_id)
    assert line["path"] == path


@pytest.mark.parametrize("surplus, status", [(-1, 200), (0, 200), (1, 413)])
def test_a_body_of_any_length_is_judged_as_by_the_service(server: Server, proxy: Proxy, surplus: int, status: int):
    body = b'{"instances": [[0, 7]]}'.ljust(MAX_BODY_BYTES + surplus)
    for url in (proxy.url, server.url):
        answer = requests.post(
            f"{url}/predict", data=body, headers={"Content-Type": "application/json"}, timeout=GUARD_S
        )
        assert answer.status_code == status
        if status == 413:
            assert_problem(answer, 413)
            assert "MAX_BODY_BYTES" in answer.json()["detail"]
    assert proxy.predict([ECHO, 5.0]).status_code == 200


def test_a_body_without_a_length_has_the_same_limit(proxy: Proxy):
    def chunks(size: int) -> Iterator[bytes]:
        yield b'{"instances": [[0, 7]]}'
        yield from (b" " * 65536 for _ in range(size // 65536))

    headers = {"Content-Type": "application/json"}
    fits = requests.post(f"{proxy.url}/predict", data=chunks(1024**2), headers=headers, timeout=GUARD_S)
    assert (fits.status_code, fits.json()["predictions"]) == (200, [7.0])
    chunked = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    # As many chunks as nginx has to read to know; it waits for none of those that would follow.
    over = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks(MAX_BODY_BYTES))
    answer = raw(proxy.port, chunked + b"Connection: close\r\n\r\n" + over + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"application/problem+json" in answer


@pytest.mark.parametrize(
    "request_bytes, status",
    [
        (b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n", 501),
        (b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nLong: " + b"x" * 40_000 + b"\r\n\r\n", 400),
        (b"TRACE / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405),
        (b"GET /livez HTTP/3.0\r\nHost: x\r\n\r\n", 505),
    ],
)
def test_what_nginx_refuses_by_itself_is_a_problem_document(proxy: Proxy, request_bytes: bytes, status: int):
    head, _, body = raw(proxy.port, request_bytes).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"Content-Type: application/problem+json" in head
    assert json.loads(body)["status"] == status
    assert len(body) < 400
    assert (b"Allow: " in head) is (status == 405)


def test_a_refusal_that_is_added_to_nginx_has_the_same_form(server: Server, tmp_path: Path):
    """Whatever status nginx can be made to answer with, there is no page of its own."""
    refusals = "".join(f"location = /{status} {{ return {status}; }}\n" for status in NGINX_PAGES)
    added = {"nginx.conf": {"include jitney/closed.conf;": f"include jitney/closed.conf;\n{refusals}"}}
    with in_front_of([server.url], tmp_path, added) as proxy:
        for status in NGINX_PAGES:
            assert_problem(proxy.get(f"/{status}"), status)


@pytest.mark.parametrize("path", ["/v1/models/scripted:predict", "/v2/models/scripted/infer", "/v2%2fmodels"])
def test_a_refusal_under_the_other_protocols_has_their_form(proxy: Proxy, path: str):
    body = b" " * (MAX_BODY_BYTES + 1)
    answer = requests.post(f"{proxy.url}{path}?x=1", data=body, timeout=GUARD_S)
    assert (answer.status_code, answer.headers["Content-Type"]) == (413, "application/json")
    assert list(answer.json()) == ["error"]


def test_a_service_that_is_away_is_told_in_the_same_form(tmp_path: Path):
    with in_front_of([f"http://127.0.0.1:{free_port()}"], tmp_path) as proxy:
        answer = proxy.predict([ECHO, 1.0])
        assert_problem(answer, 502)
        assert answer.headers["Retry-After"] == "2"
        assert str(tmp_path) not in answer.text


def test_the_service_gives_up_before_nginx_does(proxy: Proxy):
    body = {"instances": [[SLEEP, 1000]], "timeout_ms": 400}
    answer = requests.post(f"{proxy.url}/predict", json=body, timeout=GUARD_S)
    assert_problem(answer, 504)
    assert answer.json()["detail"].startswith("no answer within")
    assert "Server-Timing" in answer.headers


def test_a_service_that_never_answers_is_given_up_by_nginx(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        shorter = {"jitney/proxy.conf": {"proxy_read_timeout 40s": "proxy_read_timeout 500ms"}}
        with in_front_of([url], tmp_path, shorter) as proxy:
            answer = proxy.predict([ECHO, 1.0])
            assert_problem(answer, 504)
            assert "proxy_read_timeout" in answer.json()["detail"]


def test_clients_that_leave_are_let_go_by_both(server: Server, proxy: Proxy):
    before = server.metric("inference_abandoned_total"), len(proxy.logged())

    def leave() -> None:
        with pytest.raises(requests.ReadTimeout):
            requests.post(f"{proxy.url}/predict", json={"instances": [[SLEEP, 300]]}, timeout=(GUARD_S, 0.1))

    with ThreadPoolExecutor(20) as pool:
        for left in [pool.submit(leave) for _ in range(20)]:
            left.result()
    lines = proxy.logged(before[1] + 20)
    assert sum(line["status"] == "499" for line in lines) >= 20
    server.wait_until(lambda: server.metric("inference_abandoned_total") > before[0])
    # All that were still waiting for a batch are gone: the next one has the model for itself.
    assert proxy.predict([ECHO, 3.0]).json()["predictions"] == [3.0]
    assert 'status="499"' in server.get("/metrics").text
    assert "Traceback" not in server.text()


def test_the_log_names_the_real_client_whatever_it_says_of_itself(tmp_path: Path):
    lies = {"X-Forwarded-For": "1.2.3.4", "X-Real-IP": "1.2.3.4", "Forwarded": "for=1.2.3.4"}
    model = tmp_path / "model.pkl"
    model.write_bytes(pickle.dumps(SimpleNamespace(predict=methodcaller("sum", axis=1))))
    with starting(tmp_path) as start:
        options = {"MODEL_PATH": model, "MODEL_FORMAT": "pickle", "ALLOW_PICKLE": "true"}
        server = start("--pythonpath", str(SHIPPED), app="behind_nginx:app", **options)
        with in_front_of([server.url], tmp_path / "nginx") as proxy:
            for source, spoofed in (("127.0.0.2", "1.2.3.4"), ("127.0.0.3", '<script>alert("x")</script>')):
                connection = http.client.HTTPConnection("127.0.0.1", proxy.port, GUARD_S, source_address=(source, 0))
                headers = {**lies, "X-Forwarded-For": spoofed, "User-Agent": '"\\u0000<script>'}
                connection.request("POST", "/predict", b'{"instances": [[0, 1]]}', headers | JSON)
                assert connection.getresponse().status == 200
                connection.close()
            assert proxy.get("/%22%0a<script>").status_code == 404
            # In no order: an answer is there before its line, and nginx has several processes.
            assert {line["client"] for line in proxy.logged(3)} == {"127.0.0.1", "127.0.0.2", "127.0.0.3"}
        server.wait_until(lambda: '"client":"127.0.0.3"' in server.text())
        log = server.text()
        assert '"client":"127.0.0.2"' in log
        assert "1.2.3.4" not in log
        assert "script>" not in log


def test_who_comes_without_the_proxy_is_named_as_it_is(server: Server):
    headers = {"X-Forwarded-For": "1.2.3.4", "X-Request-ID": "without-proxy"}
    requests.post(f"{server.url}/predict", json={"instances": [[0, 1]]}, headers=headers, timeout=GUARD_S)
    server.wait_until(lambda: "without-proxy" in server.text())
    (line,) = [line for line in server.text().splitlines() if "without-proxy" in line]
    assert '"client":"127.0.0.1"' in line


def test_the_scheme_that_a_client_claims_does_not_reach_the_service(proxy: Proxy):
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-Ssl": "on", "X-Forwarded-Protocol": "ssl"}
    assert proxy.predict([ECHO, 1.0], headers=headers).status_code == 200


def test_a_letter_that_is_written_as_its_number_does_not_change_the_form(proxy: Proxy):
    answer = ask_raw(proxy, b"POST", "/%76%32/repository/index")
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert answer.endswith(b'{"error":"there is nothing at this path"}')


def test_the_log_tells_the_path_as_it_was_sent_and_no_query(server: Server, tmp_path: Path):
    """Also where nginx answers by itself, and whatever bytes it is made of."""
    sent = {
        b"/caf\xc3\xa9": "",
        b"/caf\xe9?a": "",
        b"/%ff": "/%ff",
        b'/"\\': '/"\\',
        b"/x?key=y": "/x",
        b"/metrics": "/metrics",
    }
    with in_front_of([server.url], tmp_path) as proxy:
        for path in sent:
            raw(proxy.port, b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert [line["path"] for line in proxy.logged(len(sent))] == list(sent.values())


@contextmanager
def connections(proxy: Proxy, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        opened = [socket.create_connection(("127.0.0.1", proxy.port), timeout=GUARD_S) for _ in range(count)]
        for connection in opened:
            stack.enter_context(connection)
        yield opened


def test_slow_uploads_hold_no_thread_of_the_service(proxy: Proxy):
    body = b'{"instances": [[0, 9]]}'.ljust(64 * 1024)
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with connections(proxy, 10) as slow:
        for connection in slow:
            connection.sendall(head % len(body) + body[:1024])
        for sent in range(1, 6):
            for connection in slow:
                connection.sendall(body[sent * 1024 : (sent + 1) * 1024])
            assert proxy.get("/healthz").status_code == 200
            # With all eight threads held it would wait for one until its time is over.
            assert proxy.predict([ECHO, 1.0]).status_code == 200
        for connection in slow:
            connection.sendall(body[6 * 1024 :])
            assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "path",
    [
        *("/metrics", "/metrics/", "//metrics", "/%6detrics", "/METRICS", "/%6D%45trics", "/./metrics", "/metrics/x"),
        *("/x/../metrics", "/metrics?name[]=x", "/metrics%2f", "///%2fmetrics", "http://x/metrics", "/metrics#x"),
        *("/status.json", "/STATUS%2ejson", "/v2/repository/index", "//v2//repository/models/scripted/load"),
        *("/v2/%72epository/models/scripted/unload", "/V2/Repository/index"),
    ],
)
@pytest.mark.parametrize("method", [b"GET", b"POST"])
def test_what_is_for_those_inside_is_closed_in_every_spelling(proxy: Proxy, path: str, method: bytes):
    answer = ask_raw(proxy, method, path)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b"Server-Timing" not in answer  # the service was not even asked


@pytest.mark.parametrize("path", ["/metrics%20", "/metrics%09", "/metrics;x", "/%256detrics", "/metrics%00"])
def test_what_looks_like_it_leads_nowhere(proxy: Proxy, path: str):
    assert ask_raw(proxy, b"GET", path).startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 "))


def ask_raw(proxy: Proxy, method: bytes, path: str, headers: bytes = b"") -> bytes:
    tail = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n" + headers + b"\r\n"
    return raw(proxy.port, method + b" " + path.encode() + tail)


def test_who_looks_after_the_service_still_sees_everything(server: Server):
    assert "inference_rows_total" in server.get("/metrics").text
    assert server.get("/status.json").status_code == 200


def test_idle_clients_meet_no_closing_service_and_slow_ones_hold_nothing(proxy: Proxy):
    """200 requests after silences of up to 6 s, beside 20 clients that send a byte of their head each second."""
    is_over = threading.Event()

    def drip(slow: list[socket.socket]) -> bool:
        """Send a byte on each connection; whether all of them are closed."""
        closed = 0
        for connection in slow:
            try:
                connection.sendall(b"x")
            except OSError:
                closed += 1
        return closed == len(slow)

    def ask_now_and_then(gaps_s: list[float]) -> list[int]:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, GUARD_S)
        found = []
        for gap_s in gaps_s:
            connection.request("POST", "/predict", b'{"instances": [[0, 1]]}', JSON)
            answer = connection.getresponse()
            answer.read()
            found.append(answer.status)
            is_over.wait(gap_s)
        connection.close()
        return found

    gaps_s = [[1 + client % 3, 6 - client % 3, 2.5, 0.0] for client in range(50)]
    with connections(proxy, 20) as slow, ThreadPoolExecutor(50) as pool:
        for connection in slow:
            connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        clients = [pool.submit(ask_now_and_then, gaps) for gaps in gaps_s]
        # client_header_timeout, and as much again on a busy machine.
        wait_until(lambda: is_over.wait(1.0) or drip(slow), "all slow clients are sent away", guard_s=20.0)
        statuses = [status for client in clients for status in client.result()]
    assert statuses == [200] * 200


def test_http_2_over_tls(server: Server, tmp_path: Path):
    certificate(tmp_path / "tls")
    swap = {"include local/server.conf": "include local/server-tls.conf"}
    with in_front_of([server.url], tmp_path, {"nginx.conf": swap}) as proxy:
        command = ["curl", "-s", "--http2", "--cacert", str(tmp_path / "tls/fullchain.pem"), "-w", " %{http_version}"]
        body = ["-H", "Content-Type: application/json", "-d", '{"instances": [[0, 4]]}']
        url = f"https://localhost:{proxy.port}"
        answer = subprocess.run([*command, *body, f"{url}/predict"], capture_output=True, text=True, timeout=GUARD_S)
        assert '"predictions":[4.0]' in answer.stdout
        assert answer.stdout.endswith(" 2")
        closed = subprocess.run([*command, f"{url}/metrics"], capture_output=True, text=True, timeout=GUARD_S)
        assert '"status":404' in closed.stdout
        plain = requests.get(f"http://127.0.0.1:{proxy.port}/livez", timeout=GUARD_S)
        assert_problem(plain, 400)


def certificate(directory: Path) -> None:
    """A key, and a certificate for localhost that is its own authority."""
    directory.mkdir()
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(directory / "privkey.pem"), "-out", str(directory / "fullchain.pem")]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]
    subprocess.run(["openssl", "req", *kind, *names, *files], check=True, capture_output=True, timeout=GUARD_S)
