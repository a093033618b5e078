"""The pages of a node for monitoring: /metrics, /health and /status."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from tacit.peer.monitoring.access import Access
from tacit.peer.monitoring.http_server import JSON, Pages, Response, to_json
from tacit.peer.monitoring.metrics import Metrics

METRICS = "text/plain; version=0.0.4; charset=utf-8"


def monitoring_pages(
    status: Callable[[bool], dict[str, Any]],
    health: Callable[[], tuple[bool, str]],
    metrics: Metrics,
    access: Access,
    *,
    shares_scores: Callable[[], bool] = lambda: False,
) -> Pages:
    """The pages by path.

    Loss and accuracy are computed from the node's data. Requests without the token do not get them,
    unless the node `shares_scores` anyway.

    Args:
        status: The status; its argument is whether to include loss and accuracy.
        health: Whether the node is healthy, and why.
        metrics: The node's metrics.
        access: Who has the token.
        shares_scores: Whether the node tells others its loss and accuracy.
    """

    def see_scores(request: Any) -> bool:
        return access.allows(request) or shares_scores()

    return {
        "/metrics": lambda request: Response(
            HTTPStatus.OK, METRICS, metrics.text(scores=see_scores(request))
        ),
        "/status": lambda request: Response(
            HTTPStatus.OK, JSON, to_json(status(see_scores(request)))
        ),
        "/health": lambda request: _health_response(health),
    }


def _health_response(health: Callable[[], tuple[bool, str]]) -> Response:
    try:
        healthy, reason = health()
    except Exception as problem:
        # Only the type: the message may hold secrets.
        healthy, reason = False, f"the health check raised {type(problem).__name__}"
    status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
    return Response(status, JSON, to_json({"healthy": healthy, "reason": reason}))
