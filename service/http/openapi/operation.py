"""One operation of the API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from service.http.keys import Access
from service.http.openapi.errors import ErrorForm, errors
from service.http.openapi.parameters import in_path
from service.http.openapi.security import security_of
from service.http.openapi.served import Served
from service.probe_paths import PROBE_PATHS


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    `describe`: the rest of its OpenAPI object: query and headers, body, answers. `access`: the key that it needs.
    `form`: how its errors are answered.
    """

    method: str
    path: str
    operation_id: str
    tag: str
    summary: str
    describe: Callable[[Served], dict[str, Any]]
    access: Access = Access.OPEN
    form: ErrorForm = ErrorForm.NATIVE

    def as_openapi(self, served: Served) -> dict[str, Any]:
        """The Operation Object."""
        described = self.describe(served)
        operation = {"operationId": self.operation_id, "tags": [self.tag], "summary": self.summary} | described
        parameters = in_path(self.path, served) + described.get("parameters", [])
        # Whatever is asked for but probes is refused while too many requests wait for a thread.
        everywhere = set() if self.path in PROBE_PATHS else {429}
        if parameters:
            operation["parameters"] = parameters
            everywhere.add(414)
        security = security_of(self.access, served.settings)
        if security:
            operation["security"] = security
            everywhere.add(401)
        operation["responses"] = dict(sorted((described["responses"] | errors(everywhere, self.form)).items()))
        return operation
