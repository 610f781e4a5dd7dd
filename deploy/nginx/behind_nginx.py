"""The service where nothing but nginx can reach it: its log names the client, and not nginx, as the other side.

    gunicorn -c python:service.gunicorn_config --pythonpath deploy/nginx behind_nginx:app

Whoever else could reach the service could write any address into its log: then serve `service:create_app()`.
"""

from __future__ import annotations

from werkzeug.middleware.proxy_fix import ProxyFix

from service import create_app

app = create_app()
# One proxy, whose word on the address is the last one; it says nothing of hosts, ports or prefixes.
app.wsgi_app = ProxyFix(app.wsgi_app, x_for=1, x_proto=1, x_host=0, x_port=0, x_prefix=0)  # type: ignore[method-assign]
