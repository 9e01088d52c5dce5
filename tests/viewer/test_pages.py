"""The web pages through their server: who may use them, what they get, and what nonsense does."""

from __future__ import annotations

import http.client
import json
import random
import urllib.parse
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from thespis.core.errors import UserError
from thespis.data.comparison_files import write_queries
from thespis.evaluation.episode_frames import count_frames, frames_path, read_frame, write_frames
from thespis.viewer.ask import ask_about_responses
from thespis.viewer.episodes import EpisodeLibrary, episode_json
from thespis.viewer.questions import ResponseQuestions, SegmentQuestions
from thespis.viewer.server import PageServer

LENGTH, NUM_REQUESTS = 30, 1_000


def write_record(path, length=LENGTH, frames=True, **about):
    """An episode record whose frames have the brightness of their index."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "observation": np.arange(3 * length, dtype="float32").reshape(length, 3),
        "action": np.zeros(length, "int32"),
        "reward": np.linspace(-1, 1, length, dtype="float32"),
        "value": np.full(length, np.nan, "float32"),
        "terminated": np.arange(length) == length - 1,
        "truncated": np.zeros(length, bool),
        "words": np.array([f"step {i} was <b>good</b>" for i in range(length)]),
    }
    about = {"format": 1, "env": "grid", "return": 0.0, "length": length, "method": "ppo", "step": 7, "seed": 0} | about
    np.savez_compressed(path, about=np.array(json.dumps({"mode": "greedy"} | about)), **columns)
    if frames:
        write_frames(frames_path(path), [np.full((20, 30, 3), i, np.uint8) for i in range(length + 1)])


@pytest.fixture
def run_directory(tmp_path):
    run = tmp_path / "run"
    write_record(run / "episodes" / "one.npz")
    write_record(run / "episodes" / "plain.npz", length=5, frames=False)
    (run / "episodes" / "damaged.npz").write_bytes(b"nothing")
    batch = run / "labels" / "step_7"
    write_record(batch / "episodes" / "a.npz")
    write_record(batch / "episodes" / "b.npz", frames=False)
    pairs = [[{"episode": name, "start": 5 * i, "length": 5} for name in "ab"] for i in range(4)]
    write_queries(batch, {"mask": np.ones((4, 2, 5), bool)}, {"pairs": pairs})
    return run


class Client:
    """A browser that says what it is told to."""

    def __init__(self, url):
        self.parts = urllib.parse.urlsplit(url)
        self.path = self.parts.path

    def request(self, method, path, body=None, headers=None, *, whole_path=None):
        connection = http.client.HTTPConnection(self.parts.hostname, self.parts.port, timeout=30)
        try:
            headers = {"content-type": "application/json"} | (headers or {}) if method == "POST" else headers or {}
            connection.request(method, whole_path or self.path + path, body, headers)
            response = connection.getresponse()
            return response.status, response.read(), response.headers
        finally:
            connection.close()

    def get(self, path, **headers):
        return json.loads(self.request("GET", path, headers=headers)[1])

    def post(self, path, document):
        status, body, _ = self.request("POST", path, json.dumps(document).encode())
        return status, json.loads(body)


@pytest.fixture
def questions(run_directory):
    return SegmentQuestions(run_directory / "labels" / "step_7", "run")


@pytest.fixture
def client(run_directory, questions):
    with PageServer(EpisodeLibrary([run_directory]), questions).background() as url:
        yield Client(url)


def test_frames_are_read_one_at_a_time(tmp_path):
    path = tmp_path / "a.frames.zip"
    frames = [np.random.default_rng(i).integers(0, 255, (16, 12, 3), np.uint8) for i in range(3)]
    write_frames(path, frames)
    assert count_frames(path) == 3
    np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(read_frame(path, 1))).convert("RGB")), frames[1])
    large = np.full((200, 300, 3), (10, 200, 90), np.uint8)
    write_frames(path, [large])
    assert np.abs(np.asarray(Image.open(BytesIO(read_frame(path, 0))).convert("RGB")).astype(int) - large).max() <= 6
    with pytest.raises(UserError, match="no frame 1"):
        read_frame(path, 1)
    write_frames(path, [])
    assert not path.exists() and count_frames(path) == 0
    path.write_bytes(b"nothing")
    with pytest.raises(UserError, match="no file of frames"):
        count_frames(path)


def test_episodes_of_a_run_and_of_its_labels_are_listed(client, run_directory):
    episodes = client.get("api/episodes")["episodes"]
    names = ["run/episodes/one", "run/episodes/plain", "run/labels/step_7/episodes/a", "run/labels/step_7/episodes/b"]
    assert sorted(episode["id"] for episode in episodes) == names
    one = next(episode for episode in episodes if episode["id"] == names[0])
    assert (one["length"], one["method"], one["seed"]) == (LENGTH, "ppo", 0)
    data = client.get(f"api/episodes/{names[0]}")
    assert data["num_frames"] == LENGTH + 1 and data["ends"] == {"terminated": True, "truncated": False}
    assert data["columns"]["reward"][0] == -1 and data["columns"]["value"] == [None] * LENGTH
    assert data["components"]["observation"][2] == [6, 7, 8] and data["words"][3] == "step 3 was <b>good</b>"
    status, content, headers = client.request("GET", f"frames/12/{names[0]}")
    assert status == 200 and headers["content-type"] == "image/webp"
    assert np.asarray(Image.open(BytesIO(content)).convert("RGB"))[0, 0].tolist() == [12] * 3
    assert client.request("GET", f"frames/99/{names[0]}")[0] == 404
    assert client.request("GET", "api/episodes/run/episodes/damaged")[0] == 404


def test_two_runs_of_one_name_and_single_records(tmp_path):
    for parent in "ab":
        write_record(tmp_path / parent / "run" / "episodes" / "one.npz")
    library = EpisodeLibrary([tmp_path / "a" / "run", tmp_path / "b" / "run"])
    assert [*library.files()] == ["run/episodes/one", "run~2/episodes/one"]
    single = tmp_path / "a" / "run" / "episodes" / "one.npz"
    assert [*EpisodeLibrary([single]).files().values()] == [single]
    for path in (tmp_path / "missing", tmp_path / "a" / "run" / "episodes" / "one.frames.zip"):
        with pytest.raises(UserError, match="neither the directory of a run nor"):
            EpisodeLibrary([path])


def test_a_dialogue_keeps_its_turns(tmp_path):
    turns = [{"observation": "hi", "response": "ho", "reward": 1.0, "value": None, "advantage": None}]
    write_record(tmp_path / "a.npz", length=1, frames=False, turns=turns)
    data = episode_json(tmp_path / "a.npz")
    assert data["turns"] == turns and data["components"] == {} and "turns" not in data["about"]


def test_an_episode_comes_with_the_report_card_of_its_run(tmp_path):
    write_record(tmp_path / "run" / "episodes" / "one.npz", frames=False)
    path = EpisodeLibrary([tmp_path / "run"]).path("run/episodes/one")
    assert episode_json(path)["report_card"] == []
    card = {
        "num_episodes": 10,
        "returns": {"critic": [0.25, 0.75]},
        "shares": {"repaired": [0.5, 1.0], "spoiled": [None]},
    }
    (tmp_path / "run" / "final.json").write_text(json.dumps({"report_card": card}))
    rows = episode_json(path)["report_card"]
    assert [row[:2] for row in rows] == [("repaired", "75.0%"), ("spoiled", "–"), ("return of the critic", "0.5000")]
    (tmp_path / "run" / "final.json").write_text("{")
    assert episode_json(path)["report_card"] == [], "a damaged file does not hide the episode"


def test_a_person_answers_undoes_and_goes_on_later(client, run_directory, questions):
    assert client.get("api/labels") == {
        "kind": "segments", "directory": str(questions.directory), "total": 4, "answers": {}, "next": 0,
    }  # fmt: skip
    sides = client.get("api/questions/1")["sides"]
    assert sides[0] == {
        "episode": "run/labels/step_7/episodes/a", "start": 5, "length": 5, "num_frames": 6,
    }  # fmt: skip
    assert len(sides[1]["components"]["observation"]) == 5
    assert client.post("api/labels", {"query": 0, "answer": "first", "seconds": 2.5})[1]["next"] == 1
    assert client.post("api/labels", {"query": 1, "answer": "equal"})[1]["answers"] == {"0": "first", "1": "equal"}
    status = client.post("api/undo", {})[1]
    assert (status["undone"], status["next"], status["answers"]) == (1, 1, {"0": "first"})
    with PageServer(EpisodeLibrary([run_directory]), SegmentQuestions(questions.directory, "run")).background() as url:
        assert Client(url).get("api/labels")["answers"] == {"0": "first"}


def test_only_the_browser_of_this_machine_with_the_address_is_served(client, questions):
    host, answer = client.parts.netloc, json.dumps({"query": 0, "answer": "first"}).encode()
    port = client.parts.port
    refused = [
        (404, {}, "/api/labels"),
        (404, {}, f"/{'x' * (len(client.path) - 2)}/api/labels"),
        (404, {}, "/"),
        (403, {"origin": "http://example.com"}, None),
        (403, {"origin": "null"}, None),
        (403, {"origin": f"http://127.0.0.1:{port + 1}"}, None),
        (403, {"host": "example.com"}, None),
        (403, {"host": f"example.com:{port}"}, None),
        (415, {"content-type": "text/plain"}, None),
        (415, {"content-type": "application/x-www-form-urlencoded"}, None),
        (413, {"content-length": "99999999"}, None),
    ]
    for status, headers, whole_path in refused:
        result = client.request("POST", "api/labels", answer, headers, whole_path=whole_path)
        assert result[0] == status, (headers, whole_path, result)
        assert "access-control-allow-origin" not in result[2]
    assert questions.labels.answers == {}
    for allowed in ({}, {"origin": f"http://{host}"}, {"host": f"localhost:{port}"}):
        assert client.request("POST", "api/labels", answer, allowed)[0] == 200
    _, _, headers = client.request("GET", "")
    assert "default-src 'self'" in headers["content-security-policy"] and headers["referrer-policy"] == "no-referrer"


NUMBERS = [None, True, False, 0, 1, -1, 3, 4, 1.0, 0.5, 2**63, 10**400, 1e308, float("nan"), float("inf")]
VALUES = [*NUMBERS, "", "0", "first", "third", "\ud800", "x" * 500, [], [0], {}, {"query": 0}, ["first"]]
PATHS = ["//", "api/questions/9", "api/questions/-1", "api/questions/1e3", "api/episodes/../../run", "api/%00", "%ff"]
PATHS += ["static/../app.py", "static/%2e%2e/app.py", "static/", "frames/0/nothing", "frames/x/y"]
BODIES = [b"[" * 50_000, b"1", b"null", b'"a"', b"", b"{"]


def random_request(rng):
    """Method, path and body of a request that answers no question."""
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "POST"]), rng.choice(PATHS), b"{}"
    if kind == 1:
        return "POST", "api/labels", rng.randbytes(rng.randrange(300))
    if kind == 2:
        return "POST", rng.choice(["api/labels", "api/undo"]), rng.choice(BODIES)
    query, answer = rng.choice(VALUES), rng.choice(VALUES)
    if type(query) is int and 0 <= query < 4 and answer in ("first", "second", "equal", "skip"):
        answer = "none"
    body = {"query": query, "answer": answer, rng.choice(["seconds", "x", "undo"]): rng.choice(VALUES)}
    text = json.dumps(body)
    return "POST", "api/labels", (text[: rng.randrange(len(text))] if kind == 3 else text).encode()


def test_a_thousand_malformed_requests_change_no_label_and_leave_no_traceback(client, questions, capfd):
    assert client.post("api/labels", {"query": 2, "answer": "first"})[0] == 200
    before = questions.labels.path.read_bytes()
    rng, statuses = random.Random(0), set()
    for _ in range(NUM_REQUESTS):
        method, path, body = random_request(rng)
        status, content, _ = client.request(method, path, body)
        statuses.add(status)
        assert status < 500, (method, path, body, content)
        if status >= 400 and method != "HEAD":
            assert set(json.loads(content)) == {"error"}
    assert {400, 404, 405} <= statuses
    assert questions.labels.path.read_bytes() == before
    assert client.get("api/labels")["answers"] == {"2": "first"}
    output = capfd.readouterr()
    assert "Traceback" not in output.out + output.err


def test_responses_become_a_file_of_preferences(tmp_path):
    path = tmp_path / "answers.jsonl"
    rows = [
        {"prompt": "2 + 2?", "responses": ["4", "5"]},
        {"prompt": [{"role": "user", "content": "Hi"}], "chosen": "Hello", "rejected": "What?"},
        {"prompt": "Bye", "responses": ["a", "b"]},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    questions = ResponseQuestions(ask_about_responses(path))
    with PageServer(EpisodeLibrary([]), questions).background() as url:
        client = Client(url)
        question = client.get("api/questions/1")
        assert question["prompt"] == "user: Hi" and question["sides"] == [{"text": "Hello"}, {"text": "What?"}]
        for query, answer in enumerate(("first", "second", "equal")):
            assert client.post("api/labels", {"query": query, "answer": answer})[0] == 200
    lines = [json.loads(line) for line in (tmp_path / "answers.labels" / "preferences.jsonl").read_text().splitlines()]
    assert lines == [
        {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"},
        {"prompt": [{"role": "user", "content": "Hi"}], "chosen": "What?", "rejected": "Hello"},
    ]
    assert ResponseQuestions(ask_about_responses(path)).labels.next_query is None  # goes on where it was
    path.write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(UserError, match="has changed"):
        ask_about_responses(path)


@pytest.mark.parametrize(
    "line",
    [
        '{"prompt": "a"}',
        '{"prompt": "a", "responses": ["b"]}',
        '{"prompt": 3, "responses": ["a", "b"]}',
        '{"prompt": [{}], "responses": ["a", "b"]}',
        '{"prompt": "a", "responses": ["a", 2]}',
        "[]",
        "x",
    ],
)
def test_a_line_without_two_responses_is_named(tmp_path, line):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"prompt": "a", "responses": ["b", "c"]}\n' + line + "\n")
    with pytest.raises(UserError, match="line 2: a line has prompt"):
        ask_about_responses(path)
