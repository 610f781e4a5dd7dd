"""Which keys open what, as far as the settings ask for any."""

from __future__ import annotations

from typing import Any

from service.http.keys import Access
from service.settings import Settings

# Each key goes into either header.
_HOLDERS = {
    Access.INFERENCE: ("", "API_KEYS"),
    Access.METRICS: ("metrics", "METRICS_KEY"),
    Access.ADMIN: ("admin", "ADMIN_TOKEN"),
}


def security_of(access: Access, settings: Settings) -> list[dict[str, list[str]]]:
    """What an operation needs, one of them; empty where no key is set for it."""
    return [{name: []} for name in _schemes(access)] if _is_set(access, settings) else []


def security_schemes(settings: Settings) -> dict[str, Any]:
    """The schemes of all keys that are set, by component name."""
    return {
        name: scheme for access in _HOLDERS if _is_set(access, settings) for name, scheme in _schemes(access).items()
    }


def _is_set(access: Access, settings: Settings) -> bool:
    return access in _HOLDERS and bool(getattr(settings, _HOLDERS[access][1].lower()))


def _schemes(access: Access) -> dict[str, dict[str, str]]:
    prefix, setting = _HOLDERS[access]
    bearer, header = (f"{prefix}Bearer", f"{prefix}Key") if prefix else ("bearer", "apiKey")
    told = f"A key of {setting}." if access is Access.INFERENCE else f"The key that {setting} sets."
    return {
        bearer: {"type": "http", "scheme": "bearer", "description": told},
        header: {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": told},
    }
