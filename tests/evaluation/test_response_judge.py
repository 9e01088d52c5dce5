"""Language models as judges of recorded responses: verdicts, orders, votes, what is kept, and what survives a crash."""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from language.chat_checkpoint import write as write_checkpoint

from thespis.cli.main import run as run_command
from thespis.core.errors import UserError
from thespis.evaluation.judge_settings import JudgeSettings
from thespis.evaluation.judged_files import judge_file, read_pairs
from thespis.evaluation.response_judge import (
    JudgedPair,
    ResponseJudge,
    ResponsePair,
    Verdict,
    judge_prompt,
    read_verdict,
    summarize,
)
from thespis.language.engine import DEFAULT_GENERATION, Completion, CompletionChoice, CompletionChunk, GenerationConfig
from thespis.language.tokenizer import load_tokenizer

_READ = re.compile(r"Response A:\n(.*?)\n\nResponse B:\n(.*?)\n\n(?:Reply|First)", re.DOTALL)


def read_responses(prompt: str) -> tuple[str, str]:
    """The responses A and B in what a judge reads."""
    match = _READ.search(prompt)
    assert match is not None, prompt
    return match[1], match[2]


class RuleEngine:
    """An engine that replies by a rule, and remembers what it has read."""

    def __init__(self, rule: Callable[[str, GenerationConfig], str]):
        self.rule, self.prompts, self.configs = rule, list[str](), list[GenerationConfig]()

    def generate(self, prompts: Sequence[Any], config: GenerationConfig = DEFAULT_GENERATION) -> list[Completion]:
        self.prompts += [prompt[-1]["content"] for prompt in prompts]
        self.configs.append(config)
        texts = [self.rule(prompt[-1]["content"], config) for prompt in prompts]
        return [Completion((CompletionChoice(text, "stop"),)) for text in texts]

    def stream(self, prompt: Any, config: GenerationConfig = DEFAULT_GENERATION) -> Iterator[CompletionChunk]:
        yield CompletionChunk(text=self.generate([prompt], config)[0].text, finish_reason="stop")


def longer(prompt: str, config: GenerationConfig) -> str:
    """A judge that prefers the longer response."""
    first, second = read_responses(prompt)
    word = "tie" if len(first) == len(second) else "A" if len(first) > len(second) else "B"
    return f"The other could be the Verdict: {'B' if word == 'A' else 'A'}, but no.\n**Verdict:** {word}."


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("Verdict: A", "first"),
        ("A is wrong. verdict = b.", "second"),
        ("Verdict: A would be wrong\nVerdict: B", "second"),
        ("**Verdict**: [[A]]", "first"),
        ('{"reasons": "A knows more.", "verdict": "tie"}', "tie"),
        (" B.", "second"),
        ("A tie breaks this: Verdict: Aardvark", "unreadable"),
        ("Both have a point.", "unreadable"),
        ("", "unreadable"),
    ],
)
def test_verdicts_are_read_from_the_end(text: str, choice: str):
    swapped = {"first": "second", "second": "first"}
    assert read_verdict(text, False) == choice
    assert read_verdict(text, True) == swapped.get(choice, choice)


def test_both_orders_cancel_a_bias_for_a_place():
    pairs = [ResponsePair("hi", ("long answer", "no"), "first"), ResponsePair("hi", ("no", "long answer"), "first")]
    honest, biased = RuleEngine(longer), RuleEngine(lambda prompt, config: "Verdict: A")
    judged = ResponseJudge(honest).compare(pairs)
    assert [pair.preference for pair in judged] == ["first", "second"]
    assert [pair.is_consistent for pair in judged] == [True, True]
    assert [read_responses(prompt) for prompt in honest.prompts[:2]] == [("long answer", "no"), ("no", "long answer")]
    summary = summarize(ResponseJudge(biased).compare(pairs), 1.0)
    assert (summary.num_kept, summary.consistency, summary.first_place_share) == (0, 0.0, 1.0)
    assert summary.label_agreement == 0.5
    assert ["nothing to learn" in warning for warning in summary.warnings] == [True, False]
    assert "place" in summary.warnings[1]


def test_one_order_is_balanced_over_pairs_and_does_not_depend_on_the_batch():
    pairs = [ResponsePair("hi", (f"answer {i}", f"other {i}")) for i in range(200)]
    judge = ResponseJudge(RuleEngine(lambda prompt, config: "Verdict: A"), JudgeSettings(both_orders=False))
    judged = judge.compare(pairs)
    assert 70 < sum(pair.preference == "first" for pair in judged) < 130
    assert judged[50:60] == judge.compare(pairs[50:60])
    other = ResponseJudge(judge.engine, JudgeSettings(both_orders=False, seed=1)).compare(pairs)
    assert other != judged


def test_votes_and_what_is_kept_by_hand():
    def verdicts(*choices: str) -> tuple[Verdict, ...]:
        return tuple(Verdict(choice, i % 2 == 1, "") for i, choice in enumerate(choices))  # pyright: ignore[reportArgumentType]

    first, second = ResponsePair("p", ("a", "b"), "first"), ResponsePair("p", ("a", "b"), "second")
    judged = [
        JudgedPair(first, verdicts("first", "first", "first", "first")),
        JudgedPair(first, verdicts("first", "second", "first", "first")),
        JudgedPair(second, verdicts("first", "first", "tie", "unreadable")),
        JudgedPair(second, verdicts("second", "first", "first", "second")),
    ]
    assert [pair.agreement for pair in judged] == [1.0, 0.75, 0.5, 0.0]
    assert [pair.is_consistent for pair in judged] == [True, None, True, None]
    summary = summarize(judged, 0.75)
    assert (summary.num_pairs, summary.num_kept) == (4, 2)
    assert summary.label_agreement == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert summary.kept_label_agreement == 1.0
    assert (summary.tie_share, summary.unreadable_share) == (1 / 16, 1 / 16)
    assert summary.agreement_by_votes == {0: (1, 0.5), 2: (1, 0.0), 3: (1, 1.0), 4: (1, 1.0)}
    # read first: of the even verdicts those for the first response, of the odd ones those for the second
    assert summary.first_place_share == pytest.approx((2 + 3 + 1 + 2) / 14)


def test_votes_have_seeds_of_their_own_and_a_reference_of_their_own():
    def answer(prompt: str, config: GenerationConfig) -> str:
        return f"own {config.seed}" if prompt == "What is red?" else longer(prompt, config)

    engine = RuleEngine(answer)
    settings = JudgeSettings(num_votes=2, temperature=0.5, seed=7, own_reference=True, principle="It is short.")
    (judged,) = ResponseJudge(engine, settings).compare([ResponsePair("What is red?", ("blood", "the sky"))])
    assert judged.references == ("own 7", "own 8")
    assert [config.seed for config in engine.configs] == [7, 7, 8, 8]
    compared = [prompt for prompt in engine.prompts if prompt != "What is red?"]
    assert ["own 7" in prompt for prompt in compared] == [True, True, False, False]
    assert all("It is short." in prompt for prompt in compared)
    assert len(judged.verdicts) == 4
    with pytest.raises(UserError, match="temperature above 0"):
        JudgeSettings(num_votes=2)


def test_a_file_is_judged_filtered_and_continued(tmp_path: Path):
    rows = [{"prompt": f"say {i}", "chosen": "x" * (i % 7 + 1), "rejected": "xxx", "id": i} for i in range(80)]
    path, out, engine = write_lines(tmp_path / "pairs.jsonl", rows), tmp_path / "out", RuleEngine(longer)
    judge = ResponseJudge(engine)
    assert judge_file(path, judge, "rule", out, max_pairs=32).num_pairs == 32
    with open(out / "judgments.jsonl", "a") as file:
        file.write('{"pair": 32, "verd')  # a crash
    summary = judge_file(path, judge, "rule", out)
    assert len(engine.prompts) == 2 * 80
    assert (summary.num_pairs, summary.consistency, summary.unreadable_share) == (80, 1.0, 0.0)
    equal = sum(len(row["chosen"]) == 3 for row in rows)
    kept = read_lines(out / "preferences.jsonl")
    assert len(kept) == summary.num_kept == 80 - equal
    assert all(len(row["chosen"]) > len(row["rejected"]) and row["agreement"] == 1.0 for row in kept)
    assert kept[0] == {"prompt": "say 0", "chosen": "xxx", "rejected": "x", "id": 0, "agreement": 1.0}
    right = sum(1.0 if len(row["chosen"]) > 3 else 0.5 if len(row["chosen"]) == 3 else 0.0 for row in rows)
    assert summary.label_agreement == pytest.approx(right / 80)
    low, high = summary.label_interval or (1.0, 0.0)
    assert 0 < low < right / 80 < high < 1
    assert high - low == pytest.approx(2 * 1.96 * (right / 80 * (1 - right / 80) / 80) ** 0.5, rel=0.05)
    assert read_pairs(out / "preferences.jsonl").pairs[0].label == "first"
    with pytest.raises(UserError, match="another judge, principle"):
        judge_file(path, ResponseJudge(engine, JudgeSettings(principle="It is blue.")), "other", out)
    write_lines(path, rows[::-1])
    with pytest.raises(UserError, match="another digest"):
        judge_file(path, judge, "rule", out)


def test_another_filter_asks_nothing(tmp_path: Path):
    path = write_lines(tmp_path / "pairs.jsonl", [{"prompt": "say", "responses": ["x", "xx"]}])
    answers = iter(["Verdict: B", "Verdict: A", "Verdict: B", "Verdict: B"])
    engine = RuleEngine(lambda prompt, config: next(answers))
    judge = ResponseJudge(engine, JudgeSettings(num_votes=2, temperature=1.0))
    out = tmp_path / "out"
    assert judge_file(path, judge, "rule", out).num_kept == 0
    assert judge_file(path, judge, "rule", out, min_agreement=0.75).num_kept == 1
    assert len(engine.prompts) == 4
    (row,) = read_lines(out / "preferences.jsonl")
    assert row == {"prompt": "say", "chosen": "xx", "rejected": "x", "agreement": 0.75}
    assert json.loads((out / "summary.json").read_text())["min_agreement"] == 0.75


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "a", "responses": ["b"]}, "line 2: 'responses' is a list of two texts"),
        ({"responses": ["a", "b"]}, "line 2: 'prompt' is missing"),
        ({"prompt": "a", "completion": "b"}, "line 2: pairs are judged"),
        ({"chosen": "b", "rejected": "c"}, "line 2: 'prompt' is missing"),
    ],
)
def test_rows_that_are_no_pairs_are_refused(tmp_path: Path, row: dict[str, Any], message: str):
    path = write_lines(tmp_path / "pairs.jsonl", [{"prompt": "a", "responses": ["b", "c"]}, row])
    with pytest.raises(UserError, match=message):
        read_pairs(path)


def test_chats_are_compared_after_their_common_prompt(tmp_path: Path):
    start = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hi"}]

    def row(chosen: str) -> dict[str, Any]:
        answers = {"chosen": chosen, "rejected": "no"}
        return {name: [*start, {"role": "assistant", "content": text}] for name, text in answers.items()}

    rows = [row("hello"), row("no")]
    with pytest.raises(UserError, match="line 2"):
        read_pairs(write_lines(tmp_path / "equal.jsonl", rows))
    (pair,) = read_pairs(write_lines(tmp_path / "chats.jsonl", rows[:1])).pairs
    assert pair.responses == ("hello", "no")
    prompt = judge_prompt(JudgeSettings(), pair, True)
    assert "system: Be kind.\n\nuser: hi" in prompt
    assert read_responses(prompt) == ("no", "hello")


def test_a_judge_that_cannot_be_read_is_an_error_that_says_what_to_do(tmp_path: Path):
    path = write_lines(tmp_path / "pairs.jsonl", [{"prompt": "a", "responses": ["b", "c"]}])
    with pytest.raises(UserError, match=r"begins 'I like both'.*--structured"):
        judge_file(path, ResponseJudge(RuleEngine(lambda prompt, config: "I like both")), "rule", tmp_path / "out")
    settings = JudgeSettings(is_structured=True)  # what the error advises works in the same directory
    engine = RuleEngine(lambda prompt, config: json.dumps({"reasons": "It is red.", "verdict": "A"}))
    judge_file(path, ResponseJudge(engine, settings), "rule", tmp_path / "out")
    schema = json.loads(engine.configs[0].json_schema or "")
    assert [*schema["properties"]] == schema["required"] == ["reasons", "verdict"]


@contextlib.contextmanager
def serving(rule: Callable[[str], str]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An endpoint on this machine that replies by a rule."""
    bodies: list[dict[str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append(body)
            message = {"role": "assistant", "content": rule(body["messages"][-1]["content"])}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
            content = json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", bodies
        server.shutdown()


def test_the_command_asks_an_endpoint_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    rows = [{"prompt": f"say {i}", "chosen": "xx", "rejected": "x" if i else "xxx"} for i in range(5)]
    path = write_lines(tmp_path / "pairs.jsonl", rows)
    with serving(lambda prompt: longer(prompt, DEFAULT_GENERATION)) as (url, bodies):
        command = [
            "judge",
            str(path),
            "--model",
            "some",
            "--endpoint",
            url,
            "--cache",
            str(tmp_path / "cache"),
            "--json",
        ]
        assert run_command([*command, "--out", str(tmp_path / "first")]) == 0
        document = json.loads(capfd.readouterr().out)
        assert run_command([*command, "--out", str(tmp_path / "second"), "--max-pairs", "3"]) == 0
    assert len(bodies) == 10
    assert document["label_agreement"] == 0.8
    assert document["usage"]["prompt_tokens"] == 100
    assert len(read_lines(Path(document["preferences"]))) == 5
    assert json.loads(capfd.readouterr().out)["usage"]["num_cached"] == 6


@pytest.mark.long
def test_a_checkpoint_judges_in_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    pytest.importorskip("llguidance")
    model = write_checkpoint(tmp_path / "model", longest=2048)
    assert load_tokenizer(model).encode("a")
    path = write_lines(tmp_path / "pairs.jsonl", [{"prompt": "red?", "responses": ["blood", "sky"]}] * 2)
    command = [
        "judge",
        str(path),
        "--model",
        str(model),
        "--out",
        str(tmp_path / "out"),
        "--no-reasons",
        "--structured",
    ]
    assert run_command([*command, "--max-tokens", "24"]) == 0
    assert "2 pairs are kept" in capfd.readouterr().out.replace("0 of", "").replace("2 of", "")
    judgments = read_lines(tmp_path / "out" / "judgments.jsonl")
    verdicts = [verdict for judgment in judgments for verdict in judgment["verdicts"]]
    assert all(json.loads(verdict["text"])["verdict"] in ("A", "B", "tie") for verdict in verdicts)
    assert all(verdict["choice"] != "unreadable" for verdict in verdicts)
