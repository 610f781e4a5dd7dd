"""Whether an nginx in front fits the service behind it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from service.doctor.findings import Finding, Verdict
from service.doctor.gunicorn_values import GunicornValues
from service.doctor.nginx import check_nginx
from service.doctor.nginx_directives import size_bytes, time_s
from service.settings import Settings

GUNICORN = GunicornValues(
    workers=1,
    threads=72,
    worker_connections=1072,
    keepalive_s=75,
    graceful_timeout_s=35,
    worker_class="service.server.worker.Worker",
    has_preload=False,
    max_requests=0,
)

GOOD = """
events {}
http {
    client_max_body_size 16m;
    upstream jitney { server 127.0.0.1:8000; keepalive 32; keepalive_timeout 60s; }
    server {
        listen 80;
        location / {
            proxy_pass http://jitney;
            proxy_http_version 1.1;
            proxy_set_header Host $host;
            proxy_set_header Connection "";
            proxy_read_timeout 40s;
            proxy_send_timeout 40s;
        }
    }
}
"""


def check(text: str, tmp_path: Path, settings: Settings | None = None, **values: float) -> list[Finding]:
    file = tmp_path / "nginx.conf"
    file.write_text(text)
    return list(check_nginx(file, settings or Settings(), replace(GUNICORN, **values)))


def wrong(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(each.verdict.value, each.fix) for each in findings if each.verdict is not Verdict.OK]


def test_a_file_that_fits_is_well(tmp_path):
    findings = check(GOOD, tmp_path)
    assert wrong(findings) == []
    assert {each.check for each in findings} == {"nginx location /"}


@pytest.mark.parametrize(
    ("before", "after", "finding"),
    [
        ("client_max_body_size 16m;", "", ("error", "client_max_body_size 16m;")),
        ("client_max_body_size 16m;", "client_max_body_size 15m;", ("error", "client_max_body_size 16m;")),
        ("client_max_body_size 16m;", "client_max_body_size much;", ("error", "client_max_body_size 16m;")),
        ("proxy_read_timeout 40s;", "proxy_read_timeout 30s;", ("error", "proxy_read_timeout 40s;")),
        ("proxy_read_timeout 40s;", "proxy_read_timeout 500ms;", ("error", "proxy_read_timeout 40s;")),
        ("proxy_read_timeout 40s;", "proxy_read_timeout soon;", ("error", "proxy_read_timeout 40s;")),
        ("proxy_read_timeout 40s;", "proxy_read_timeout 35s;", ("warning", "proxy_read_timeout 40s;")),
        ("proxy_send_timeout 40s;", "proxy_send_timeout 5s;", ("warning", "proxy_send_timeout 35s;")),
        ("keepalive_timeout 60s;", "keepalive_timeout 75s;", ("error", "keepalive_timeout 60s;")),
        ("proxy_http_version 1.1;", "", ("warning", "proxy_http_version 1.1;")),
        ('proxy_set_header Connection "";', "", ("warning", 'proxy_set_header Connection "";')),
        ("listen 80;", "proxy_request_buffering off;", ("warning", "proxy_request_buffering on;")),
        ("listen 80;", "proxy_next_upstream error non_idempotent;", ("error", "proxy_next_upstream error;")),
        ("listen 80;", "proxy_next_upstream non_idempotent;", ("error", "proxy_next_upstream error timeout;")),
        ("server 127.0.0.1:8000", "server jitney:9000", ("warning", "server 127.0.0.1:8000;")),
        ("listen 80;", "include /elsewhere/x.conf;", ("warning", "give the file that includes it, in its directory")),
    ],
)
def test_what_does_not_fit_is_found_with_the_directive_that_mends_it(before, after, finding, tmp_path):
    assert before in GOOD
    assert wrong(check(GOOD.replace(before, after), tmp_path)) == [finding]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("client_max_body_size 16m;", "client_max_body_size 0;"),
        ("keepalive_timeout 60s;", ""),
        ("proxy_read_timeout 40s;", ""),
        ("proxy_read_timeout 40s;", "proxy_read_timeout 1m30s;"),
        ("listen 80;", "include /etc/nginx/mime.types;"),
        ("http://jitney;", "http://jitney/;"),
    ],
)
def test_what_nginx_does_of_itself_and_other_ways_to_write_it_count(before, after, tmp_path):
    assert before in GOOD
    assert wrong(check(GOOD.replace(before, after), tmp_path)) == []


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("proxy_read_timeout 40s;", "proxy_read_timeout 5x;", "nginx.conf, line 13: proxy_read_timeout 5x is no time"),
        (
            "proxy_send_timeout 40s;",
            "proxy_send_timeout 40 s;",
            "nginx.conf, line 14: proxy_send_timeout 40 s is no time",
        ),
        (
            "proxy_send_timeout 40s;",
            "proxy_send_timeout 40S;",
            "nginx.conf, line 14: proxy_send_timeout 40S is no time",
        ),
        ("keepalive_timeout 60s;", "keepalive_timeout;", "nginx.conf, line 5: keepalive_timeout is no time"),
        ("keepalive_timeout 60s;", "keepalive_timeout 1s1m;", "nginx.conf, line 5: keepalive_timeout 1s1m is no time"),
        ("listen 80;", "client_body_timeout -1;", "nginx.conf, line 7: client_body_timeout -1 is no time"),
        ("listen 80;", "proxy_buffer_size 8kb;", "nginx.conf, line 7: proxy_buffer_size 8kb is no size"),
        ("16m;", "16MB;", "nginx.conf, line 4: client_max_body_size 16MB is no size"),
        ("listen 80;", "client_body_timeout $patience;", None),
    ],
)
def test_a_time_or_size_that_nginx_cannot_read_is_an_error_with_its_line(before, after, found, tmp_path):
    assert before in GOOD
    findings = check(GOOD.replace(before, after), tmp_path)
    told = [(each.verdict, each.found) for each in findings if each.verdict is not Verdict.OK]
    assert told == ([] if found is None else [(Verdict.ERROR, found)])


def test_a_semicolon_that_is_missing_is_an_error_with_its_line(tmp_path):
    (finding,) = check(GOOD.replace("http://jitney;", "http://jitney"), tmp_path)
    assert (finding.check, finding.verdict) == ("nginx file", Verdict.ERROR)
    assert "nginx.conf, line 9, behind 'http://jitney': a ; is missing" in finding.found


def test_an_inner_block_wins_over_an_outer_one(tmp_path):
    inner = GOOD.replace("proxy_pass http", "client_max_body_size 1m; proxy_pass http")
    assert wrong(check(inner, tmp_path)) == [("error", "client_max_body_size 16m;")]


def test_headers_of_an_inner_block_replace_all_of_an_outer_one(tmp_path):
    moved = GOOD.replace('proxy_set_header Connection "";', "").replace("listen 80;", 'proxy_set_header Connection "";')
    assert wrong(check(moved, tmp_path)) == [("warning", 'proxy_set_header Connection "";')]


def test_without_an_upstream_no_connection_is_kept(tmp_path):
    findings = check(GOOD.replace("http://jitney;", "http://127.0.0.1:8000;"), tmp_path)
    assert [(verdict, "keepalive 64;" in fix) for verdict, fix in wrong(findings)] == [("warning", True)]


def test_a_block_that_leads_elsewhere_is_not_looked_at(tmp_path):
    other = GOOD.replace(
        "listen 80;", "listen 80; location /else { client_max_body_size 1k; proxy_pass http://127.0.0.1:9000; }"
    )
    assert wrong(check(other, tmp_path)) == []


def test_a_socket_is_an_address_too(tmp_path):
    text = GOOD.replace("127.0.0.1:8000", "unix:/run/jitney.sock")
    assert wrong(check(text, tmp_path, Settings(bind="unix:/run/jitney.sock"))) == []
    direct = GOOD.replace("http://jitney;", "http://unix:/run/jitney.sock:/;")
    found = wrong(check(direct, tmp_path, Settings(bind="unix:/run/jitney.sock")))
    assert [verdict for verdict, _ in found] == ["warning"]


def test_limits_follow_the_settings(tmp_path):
    settings = Settings(max_body_bytes=32 * 1024 * 1024 + 1, request_timeout_ms=60_000, graceful_timeout_s=70)
    fixes = [fix for _, fix in wrong(check(GOOD, tmp_path, settings, graceful_timeout_s=70))]
    assert fixes == ["client_max_body_size 32769k;", "proxy_read_timeout 75s;", "proxy_send_timeout 65s;"]


@pytest.mark.parametrize(
    ("text", "said"), [("http {", "ends in the middle"), ("events {}", "no block hands requests on")]
)
def test_a_file_that_says_nothing_is_an_error(text, said, tmp_path):
    (finding,) = check(text, tmp_path)
    assert finding.verdict is Verdict.ERROR
    assert said in finding.found


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("512", 512), ("8k", 8192), ("16M", 16 * 1024**2), ("1g", 1024**3), ("1.5m", None)]
)
def test_sizes_are_read_as_nginx_does(text, size):
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 60),
        ("60s", 60),
        ("500ms", 0.5),
        ("1m30s", 90),
        ("1m 30s", 90),
        ("1h", 3600),
        ("1M", 2592000),
        ("", None),
        ("1x", None),
        ("30s1m", None),
        ("1s1s", None),
        ("s", None),
    ],
)
def test_times_are_read_as_nginx_does(text, seconds):
    assert time_s(text) == seconds
