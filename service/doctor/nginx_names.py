"""Names of nginx's directives, as many as it takes to see that a semicolon is missing in front of one."""

from __future__ import annotations

# *Source:* nginx.org, the index of directives: those that stand in the file of a proxy or around it.
_NAMES = """
access_log add_header allow auth_basic auth_basic_user_file client_body_buffer_size client_body_timeout
client_header_timeout client_max_body_size default_type deny error_log error_page events expires gzip
gzip_comp_level gzip_min_length gzip_proxied gzip_types http if include internal ip_hash keepalive
keepalive_requests keepalive_timeout large_client_header_buffers least_conn limit_conn limit_conn_zone limit_req
limit_req_zone listen location log_format map merge_slashes pid proxy_buffer_size proxy_buffering proxy_buffers
proxy_cache proxy_cache_path proxy_cache_valid proxy_connect_timeout proxy_hide_header proxy_http_version
proxy_ignore_client_abort proxy_intercept_errors proxy_next_upstream proxy_next_upstream_timeout
proxy_next_upstream_tries proxy_pass proxy_read_timeout proxy_redirect proxy_request_buffering proxy_send_timeout
proxy_set_header proxy_ssl_verify real_ip_header resolver resolver_timeout return rewrite root send_timeout
sendfile server server_name server_names_hash_bucket_size server_tokens set set_real_ip_from ssl_certificate
ssl_certificate_key ssl_ciphers ssl_prefer_server_ciphers ssl_protocols ssl_session_cache ssl_session_timeout
stub_status tcp_nodelay tcp_nopush try_files types upstream user worker_connections worker_processes zone
"""
DIRECTIVES = frozenset(_NAMES.split())


def begins_directive(word: str, *, is_first_of_line: bool) -> bool:
    """Whether `word`, which stands behind others, is the name of a directive and no value.

    In the middle of a line only a name of several words is taken for one: values are called `server` or `set` too.
    """
    return word in DIRECTIVES and (is_first_of_line or "_" in word)
