"""Reading nginx's configuration files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import crossplane
import pytest

from service.doctor.nginx_file import Block, NginxError, read_nginx

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
        ("http { listen 80 }", "is a ; missing"),
        ('a;\nb "no end;', "line 2: a quotation has no end"),
        ("a { " * 5000, "more than 32 deep"),
    ],
)
def test_what_is_no_configuration_is_said_with_its_place(text, said, tmp_path):
    with pytest.raises(NginxError, match=said):
        read(text, tmp_path)


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
