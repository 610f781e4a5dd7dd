"""Reading nginx's configuration files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import crossplane
import pytest

from service.doctor.nginx_file import Block, NginxError, read_nginx
from service.doctor.nginx_names import DIRECTIVES

FILES = [
    "worker_processes auto;\nevents { worker_connections 1024; }\n",
    'http {\n  # a comment { with ; marks }\n  server { listen 80; server_name a.example \'b c\' "d\\"e"; }\n}\n',
    "http { log_format main '$remote_addr - \"$request\"'; access_log off; }",
    "http { map $http_upgrade $connection { default upgrade; '' close; } }",
    'http { server { location ~ "^/a{2}$" { return 200 "x;y}"; } location = / { return 204; } } }',
    "http { server { set $a ${host}x; rewrite ^/(.*)$ /b/$1 break; } }",
    "http{server{listen 80;}upstream a{server b:1;keepalive 4;}}",
    "http { server { listen 80 ; ; } }",
]


def read(text: str, tmp_path: Path) -> Block:
    file = tmp_path / "nginx.conf"
    file.write_text(text)
    return read_nginx(file).root


def as_plain(block: Block) -> list[Any]:
    return [(each.name, list(each.args), as_plain(each)) for each in block.inside]


def as_crossplane_reads(directives: list[dict[str, Any]]) -> list[Any]:
    return [
        (each["directive"], each["args"], as_crossplane_reads(each.get("block", [])))
        for each in directives
        if each["directive"] != "#"
    ]


@pytest.mark.parametrize("text", FILES[:-1])
def test_a_file_is_read_as_nginx_own_tool_for_it_does(text, tmp_path):
    ours = as_plain(read(text, tmp_path))
    read_there = crossplane.parse(str(tmp_path / "nginx.conf"), check_ctx=False, check_args=False)
    assert read_there["status"] == "ok", read_there["errors"]
    assert ours == as_crossplane_reads(read_there["config"][0]["parsed"])


def test_a_mark_without_words_is_passed_over(tmp_path):
    (http,) = read(FILES[-1], tmp_path).inside
    assert as_plain(http) == [("server", [], [("listen", ["80"], [])])]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http { server {", "ends in the middle of a block"),
        ("http { } }", "where no block ends"),
        ("listen 80", "ends in the middle of a directive"),
        ("http { listen 80 }", "line 1, behind '80': a ; is missing, for a } follows"),
        ("http {\n  server {\n    listen 80\n  }\n}", "line 3, behind '80': a ; is missing"),
        ("listen\n80\n", "line 2, behind '80': a ; is missing"),
        ("a;\n}", "line 2: a } stands where no block ends"),
        (
            "http {\n  keepalive 4 # idle\n\n  proxy_read_timeout 40s;\n}",
            "line 2, behind '4': a ; is missing, for proxy_read_timeout begins another directive",
        ),
        ("proxy_pass http://jitney proxy_set_header Host $host;", "line 1, behind 'http://jitney': a ; is missing"),
        ("include mime.types\nserver { }", "line 1, behind 'mime.types': a ; is missing, for server begins"),
        ('a;\nb "no end;', "line 2: a quotation has no end"),
        ("a { " * 5000, "more than 32 deep"),
    ],
)
def test_what_is_no_configuration_is_said_with_its_place(text, said, tmp_path):
    with pytest.raises(NginxError, match=re.escape(said)):
        read(text, tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "server_name a.example\n  b.example;",
        'log_format main\n  server_name\n  "proxy_pass";'.replace("server_name", "'server_name'"),
        "set $who server; proxy_next_upstream error\n  timeout;",
        "map $a $b {\n  default upgrade;\n  server zone;\n}",
    ],
)
def test_values_on_several_lines_or_named_like_a_directive_miss_no_semicolon(text, tmp_path):
    assert read(text, tmp_path).inside


def test_the_names_are_those_of_directives():
    assert set(crossplane.analyzer.DIRECTIVES) >= DIRECTIVES


def test_each_directive_knows_its_place(tmp_path):
    (tmp_path / "more.conf").write_text("\n\nroot /x;")
    (http,) = read("# front\nhttp {\n  include more.conf;\n  listen\n    80;\n}", tmp_path).inside
    assert [each.place for each in (http, *http.inside)] == [
        "nginx.conf, line 2",
        "more.conf, line 3",
        "nginx.conf, line 4",
    ]


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(NginxError, match=r"nginx\.conf cannot be read"):
        read_nginx(tmp_path / "nginx.conf")


def test_includes_stand_in_their_place_in_the_order_of_their_names(tmp_path):
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites" / "b.conf").write_text("server { listen 2; include deeper.conf; }")
    (tmp_path / "sites" / "a.conf").write_text("server { listen 1; }")
    (tmp_path / "deeper.conf").write_text("root /x;")  # beside the main file, as nginx has it
    (http,) = read("http { include sites/*.conf; include " + str(tmp_path / "deeper.conf") + "; }", tmp_path).inside
    assert as_plain(http) == [
        ("server", [], [("listen", ["1"], [])]),
        ("server", [], [("listen", ["2"], []), ("root", ["/x"], [])]),
        ("root", ["/x"], []),
    ]


@pytest.mark.parametrize(
    "pattern", ["/etc/hostname", "../outside.conf", "sites/../../outside.conf", "link.conf", "link/*"]
)
def test_nothing_outside_the_files_own_directory_is_read(pattern, tmp_path):
    home = tmp_path / "home"
    (home / "sites").mkdir(parents=True)
    (tmp_path / "outside.conf").write_text("secret on;")
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x.conf").write_text("secret on;")
    (home / "link.conf").symlink_to(tmp_path / "outside.conf")
    (home / "link").symlink_to(tmp_path / "there")
    (home / "nginx.conf").write_text(f"include {pattern}; a;")
    file = read_nginx(home / "nginx.conf")
    assert as_plain(file.root) == [("a", [], [])]
    assert [pattern in each for each in file.left_out] == [True]


def test_an_include_that_is_missing_is_told_and_a_pattern_that_fits_nothing_is_not(tmp_path):
    file = tmp_path / "nginx.conf"
    file.write_text("include missing.conf; include none/*.conf;")
    assert read_nginx(file).left_out == ("missing.conf: no such file",)


def test_includes_that_lead_to_each_other_end(tmp_path):
    (tmp_path / "nginx.conf").write_text("include a.conf;")
    (tmp_path / "a.conf").write_text("include nginx.conf;")
    with pytest.raises(NginxError, match="without an end"):
        read_nginx(tmp_path / "nginx.conf")
