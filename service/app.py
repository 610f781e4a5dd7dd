"""The wiring: a Flask extension, and an app that holds nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask
from prometheus_client import CollectorRegistry
from werkzeug.exceptions import HTTPException

from loaders.handle import ModelHandle
from service.http import problems, status
from service.http.application import JitneyFlask
from service.http.hooks import Hooks
from service.http.keys import Guard
from service.http.routes import blueprint
from service.http.shortcut import Shortcut, is_untouched
from service.metrics.batches import BatchMetrics
from service.metrics.http import HttpMetrics
from service.runtime import Runtime
from service.settings import Settings, SettingsError, TracingMode, load_settings

if TYPE_CHECKING:
    from service.tracing.tracing import Tracing


class Jitney:
    """Gives a Flask app the predict routes, the probes and `/metrics`.

    `model_handle`: a model that is in memory already, instead of `MODEL_PATH`. After `init_app` the runtime is
    `app.extensions["jitney"]`; nothing is loaded and no thread runs until its `start()`, or the first request.
    """

    def __init__(
        self, app: Flask | None = None, settings: Settings | None = None, *, model_handle: ModelHandle | None = None
    ) -> None:
        self._settings = settings
        self._model_handle = model_handle
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Add everything to `app`; its own routes and error pages stay as they are.

        Raises RuntimeError for an app that has Jitney already, or that has answered a request, and SettingsError for
        settings that its model cannot be served with: then nothing is added.
        """
        _install(app, self._settings or load_settings(), self._model_handle, whole_app=False)


def create_app(settings: Settings | None = None, *, model_handle: ModelHandle | None = None) -> Flask:
    """An app with Jitney's routes alone. Starts no thread, loads no model, reads no file."""
    app = JitneyFlask("jitney", static_folder=None, template_folder=None)
    # Paths match exactly: a redirect would make clients repeat a POST as a GET.
    app.url_map.merge_slashes = False
    app.url_map.strict_slashes = True
    _install(app, settings or load_settings(), model_handle, whole_app=True)
    return app


def _install(app: Flask, settings: Settings, model_handle: ModelHandle | None, *, whole_app: bool) -> None:
    # Judged before anything is touched: a running service must not lose its runtime to a second one.
    if "jitney" in app.extensions:
        raise RuntimeError(f"the app {app.name!r} has Jitney already: init_app can be called once for each app")
    if blueprint.name in app.blueprints:
        raise RuntimeError(f"the app {app.name!r} has a blueprint of its own that is called {blueprint.name!r}")
    if getattr(app, "_got_first_request", False):
        raise RuntimeError(f"the app {app.name!r} has answered a request already: call init_app before the first one")
    if model_handle is not None and settings.model_instances > 1 and not model_handle.is_thread_safe:
        raise SettingsError(
            f"MODEL_INSTANCES={settings.model_instances}: the model that this app hands in cannot be copied; "
            "allowed is 1, or more where its handle is made with is_thread_safe=True"
        )
    may_be_passed_by = whole_app and is_untouched(app)
    registry = CollectorRegistry()
    batch_metrics = BatchMetrics(registry)
    tracing = _traced(app, settings)
    runtime = Runtime(settings, batch_metrics, model_handle, tracing)
    app.extensions["jitney"] = runtime
    http_metrics = HttpMetrics(app, registry, batch_metrics.refresh)
    runtime.serves_alone = whole_app
    runtime.count_unseen = http_metrics.count_unseen
    guard = Guard(settings)
    Hooks(
        runtime,
        settings,
        http_metrics,
        guard,
        whole_app=whole_app,
        front_page=status.status_page if settings.status_page else None,
    ).register(app)
    app.register_blueprint(blueprint)
    if settings.status_page:
        status.register(app, whole_app=whole_app)
    if whole_app:
        app.register_error_handler(HTTPException, problems.from_http_exception)
        app.register_error_handler(Exception, problems.from_surprise)
    if may_be_passed_by:
        # The very last, as it is to know what of the app is ours.
        app.wsgi_app = Shortcut(app, runtime, settings, http_metrics, guard)  # type: ignore[method-assign]


def _traced(app: Flask, settings: Settings) -> Tracing | None:
    """Have the requests of `app` recorded where the settings say so; the hooks go before all others."""
    if settings.tracing is TracingMode.OFF:
        return None
    # Not at the top: nothing of it is to be loaded unless it is switched on.
    try:
        from service.http.traced import TracedRequests
    except ValueError as error:  # the library looks for its propagators when it is imported
        raise SettingsError(f"TRACING=otel cannot begin with this OTEL_PROPAGATORS: {error}") from error
    from service.tracing.exporters import exporters, is_disabled
    from service.tracing.tracers import is_set_by_program
    from service.tracing.tracing import Tracing

    if is_disabled():
        return None
    tracing = Tracing([] if is_set_by_program() else exporters())
    TracedRequests(tracing).register(app)
    return tracing
