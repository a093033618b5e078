"""No token, no data: how a page is opened, and how it is not."""

import json
import os
import re
import stat
from http.client import HTTPConnection

import pytest

from tacit.peer.dashboard.page import dashboard_pages, link
from tacit.peer.monitoring.access import TOKEN, Access, load_access, stored_access
from tacit.peer.monitoring.http_server import Request, serve_pages
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.monitoring.pages import monitoring_pages

SECRET = 0.123456789
PATHS = ("/dashboard", "/dashboard/data", "/status", "/metrics", "/health")


@pytest.fixture
def access():
    return Access()


@pytest.fixture
def port(access):
    """A node's server whose loss is SECRET."""

    def status(scores):
        return {"loss": SECRET} if scores else {}

    metrics = Metrics()
    metrics.set("tacit_loss", SECRET)
    metrics.set("tacit_accuracy_percent", 100 * SECRET)
    metrics.set("tacit_baseline_percent", 100 * SECRET)
    pages = monitoring_pages(status, lambda: (True, "training"), metrics, access)
    board = dashboard_pages(access, lambda: {"nodes": [{"loss": SECRET}]})
    with serve_pages(0, {**pages, **board}) as port:
        yield port


def get(port, path, method="GET", **headers):
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def cookie_from(answer):
    return answer.getheader("Set-Cookie").partition(";")[0]


def test_the_link_sets_a_cookie_that_opens_the_page(port, access):
    _, _, path = link(port, access).partition(f":{port}")
    answer, text = get(port, path)
    assert (answer.status, answer.getheader("Location"), text) == (303, "/dashboard", "")
    attributes = answer.getheader("Set-Cookie").split("; ")[1:]
    assert attributes == ["Path=/dashboard", "HttpOnly", "SameSite=Strict"]
    cookie = cookie_from(answer)
    assert get(port, "/dashboard", Cookie=cookie)[0].status == 200
    answer, text = get(port, "/dashboard/data", Cookie=f"other=1; {cookie}; more=2")
    assert json.loads(text) == {"nodes": [{"loss": SECRET}]}
    assert answer.getheader("Cache-Control") == "no-store"


def test_a_bearer_token_opens_everything(port, access):
    for path in PATHS:
        assert get(port, path, Authorization=f"Bearer {access.token}")[0].status == 200
    assert str(SECRET) in get(port, "/status", Authorization=f"Bearer {access.token}")[1]
    assert str(SECRET) in get(port, "/metrics", Authorization=f"bearer {access.token}")[1]


def attempts(access):
    """Requests that must not see anything."""
    token, name = access.token, access.cookie
    other = Access()
    wrong = token[:-1] + ("A" if token[-1] != "A" else "B")
    return [
        ("", {}),
        ("?token=", {}),
        (f"?token={wrong}", {}),
        (f"?token={token[:20]}", {}),
        (f"?token={token}x", {}),
        (f"?token={token}&token={wrong}", {}),
        (f"?Token={token}", {}),
        (f"?x={token}", {}),
        ("?token=%FF%FE", {}),
        ("", {"Cookie": f"{name}={wrong}"}),
        ("", {"Cookie": f"{name}="}),
        ("", {"Cookie": name}),
        ("", {"Cookie": f"{other.cookie}={other.token}"}),
        ("", {"Cookie": f"{other.cookie}={token}"}),
        ("", {"Authorization": f"Bearer {wrong}"}),
        ("", {"Authorization": "Bearer "}),
        ("", {"Authorization": token}),
        ("", {"Authorization": f"Basic {token}"}),
        ("", {"Referer": f"http://127.0.0.1/?token={token}"}),
    ]


def test_without_the_token_nothing_is_told(port, access):
    for query, headers in attempts(access):
        for path in PATHS:
            for method in ("GET", "HEAD"):
                answer, text = get(port, path + query, method, **headers)
                told = f"{answer.headers}{text}"
                assert str(SECRET)[:8] not in told
                assert access.token not in told
                if path.startswith("/dashboard"):
                    assert answer.status == 403
                    assert answer.getheader("Set-Cookie") is None
                else:
                    assert answer.status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil"])
def test_another_host_gets_nothing_even_with_the_token(port, access, host):
    """DNS rebinding: a page of that name is another origin, and must not read this one."""
    headers = {"Host": host, "Authorization": f"Bearer {access.token}"}
    for path in (*PATHS, f"/dashboard?token={access.token}"):
        answer, text = get(port, path, **headers)
        assert (answer.status, text) == (403, "Forbidden\n")
        assert answer.getheader("Set-Cookie") is None


def test_scores_that_are_shared_anyway_need_no_token():
    pages = monitoring_pages(
        lambda scores: {"scores": scores},
        lambda: (True, ""),
        Metrics(),
        Access(),
        shares_scores=lambda: True,
    )
    assert json.loads(pages["/status"](Request()).text) == {"scores": True}


def test_tokens_are_random_and_never_printed(access):
    assert TOKEN.fullmatch(access.token)
    assert len({Access().token for _ in range(20)}) == 20
    assert access.token not in repr(access)
    assert access.token not in access.cookie


def test_tokens_are_compared_in_constant_time(monkeypatch, access):
    compared = []

    def compare(a, b):
        compared.append((a, b))
        return False

    monkeypatch.setattr("hmac.compare_digest", compare)
    assert not access.allows(Request(headers={"cookie": f"{access.cookie}={access.token}"}))
    assert not access.allows(Request(headers={"authorization": f"Bearer {access.token}"}))
    assert access.enter(Request(query=f"token={access.token}"), "/dashboard") is None
    assert compared == [(access.token.encode(), access.token.encode())] * 3


def test_the_token_of_a_node_stays_the_same_in_a_private_file(tmp_path):
    path = tmp_path / "dashboard.token"
    assert load_access(path) is None
    first = stored_access(path)
    assert stored_access(path).token == first.token == load_access(path).token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 43, b"x" * 10_000])
def test_a_damaged_token_is_replaced(tmp_path, content):
    path = tmp_path / "dashboard.token"
    path.write_bytes(content)
    path.chmod(0o600)
    assert TOKEN.fullmatch(stored_access(path).token)


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX permissions")
def test_a_token_that_others_could_read_is_replaced(tmp_path):
    path = tmp_path / "dashboard.token"
    old = stored_access(path).token
    path.chmod(0o644)
    assert stored_access(path).token != old
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_page_is_one_response_with_a_strict_policy(port, access):
    answer, text = get(port, "/dashboard", Authorization=f"Bearer {access.token}")
    policy = dict(
        part.split(" ", 1) for part in answer.getheader("Content-Security-Policy").split("; ")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", policy["script-src"])
    assert re.fullmatch(r"'sha256-[\w+/]{43}='", policy["style-src"])
    assert "unsafe" not in answer.getheader("Content-Security-Policy")
    for name, value in {
        "Referrer-Policy": "no-referrer",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }.items():
        assert answer.getheader(name) == value
    # Nothing comes from elsewhere, and texts never become markup.
    assert re.findall(r"(?:https?:)?//[\w.]+\.[a-z]{2,}", text) == ["http://www.w3.org"]
    assert text.count("<script") == text.count("<style") == 1
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(| style=", text)
