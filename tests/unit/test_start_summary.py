from __future__ import annotations

from service.server.start_summary import start_summary
from service.settings import Settings


def test_the_start_tells_what_is_served_and_within_which_limits():
    settings = Settings(model_path="models/digits", max_batch_size=8, device="cpu", batch_policy="eager")
    message, fields = start_summary(settings, threads=24, workers=1)
    assert message == "serving models/digits"
    assert (fields["threads"], fields["workers"], fields["max_batch_size"]) == (24, 1, 8)
    assert (fields["device"], fields["batch_policy"]) == ("cpu", "eager")
    assert fields["thread_placement"] == "auto"
    assert {"max_queue_size", "max_instances", "max_body_bytes", "request_timeout_ms"} <= fields.keys()


def test_a_repository_or_the_app_may_be_where_the_models_come_from():
    assert start_summary(Settings(model_repository="models"), threads=1, workers=1)[0] == "serving models of models"
    assert start_summary(Settings(), threads=1, workers=1)[0] == "serving the model of the app"


def test_no_key_stands_in_the_line():
    settings = Settings(api_keys="a-secret-key", admin_token="another-secret", metrics_key="third-secret")
    message, fields = start_summary(settings, threads=1, workers=1)
    assert fields["has_keys"] is True
    assert "secret" not in message + str(fields)
