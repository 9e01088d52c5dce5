"""Sections of a report about one run: verdict, curves, results, calibration, settings, provenance."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from thespis.evaluation import conversation, formatting, html_page, plots, run_details, run_view
from thespis.evaluation.calibration import Calibration, calibrate
from thespis.evaluation.comparison import GroupSummary
from thespis.evaluation.figure_style import inline_svg
from thespis.evaluation.learning_curve import LearningCurve, in_readable_units
from thespis.evaluation.over_optimization import LEARNED, TRUE, OverOptimization, find_over_optimization
from thespis.evaluation.report_card import ReportCard
from thespis.evaluation.run_view import RunView

_MAX_METRIC_CHARTS = 24
_MIN_CONFIDENCE_GAP = 0.05
"""Difference of confidence and accuracy from which a reward model is called over- or under-confident."""


def run_title(run: RunView) -> str:
    """Title of a run: the method and its environment."""
    return f"{run.method_name} on {run.config.get('env') or 'a dataset'}"


def render_run(run: RunView, number: int = 0) -> str:
    """All sections about one run, as HTML; ``number`` tells it from others on the same page."""
    fitted, reward = _fit_calibration(run), find_over_optimization(run.metrics)
    return "".join(
        [
            html_page.heading(run_title(run)),
            html_page.paragraph(_run_facts(run), "sub"),
            _verdict_box(run, fitted, reward),
            html_page.section("Learning", _learning_curve_figure(run, number)),
            html_page.section("Final play", _final_section(run), _film_figure(run)),
            html_page.section("Report card", _report_card_section(run)),
            html_page.section("Held-out data", _held_out_section(run)),
            html_page.section("Conversations", conversation.conversations_html(run.conversations)),
            html_page.section("Critic calibration", _calibration_section(run, fitted)),
            html_page.section("Learned reward", _learned_reward_section(run, reward)),
            html_page.section("Metrics", _metric_charts(run)),
            html_page.section("Time", _timing_section(run)),
            html_page.section("Settings", *run_details.settings_html(run)),
            html_page.section(
                "Implementation details that are on", html_page.bullet_list(run.config.get("details") or [])
            ),
            html_page.section("References", html_page.bullet_list(run_details.bibliography(run))),
            html_page.section("Versions and machine", html_page.definition_list(run_details.run_versions(run))),
            html_page.section("Repeat this run", html_page.code_block(run_view.repeat_commands(run.config))),
        ]
    )


def _run_facts(run: RunView) -> str:
    config = run.config
    facts = [
        run.label,
        f"{config['steps']:,} {formatting.step_unit(run.config)} per seed" if "steps" in config else "",
        formatting.format_count(len(run.seeds), "training seed"),
        formatting.format_count(config["envs"], "environment") + " per seed" if "envs" in config else "",
        run_details.describe_model(run),
        run_details.run_device(run),
    ]
    return " · ".join(fact for fact in facts if fact)


def _verdict_box(run: RunView, calibration: Calibration | None, reward: OverOptimization | None) -> str:
    if run.final is None and run.config.get("loop") == "logged" and run.step >= run.config.get("steps", math.inf):
        text = f"Finished: {run.step:,} updates per seed"
        if run.held_out:
            return html_page.verdict_box(
                [f"{text}. Held-out data: {formatting.format_held_out(run.held_out[-1]['metrics'])}."]
            )
        return html_page.verdict_box([f"{text}, without an evaluation in an environment or on held-out data."])
    if run.final is None:
        planned = f" of {run.config['steps']:,}" if "steps" in run.config else ""
        text = f"Not finished: {run.step:,}{planned} {formatting.step_unit(run.config)} per seed so far."
        last = _latest_return(run)
        return html_page.verdict_box(
            [text + (f" Training return {formatting.format_number(last)}." if last is not None else "")], "waiting"
        )
    text = formatting.format_final_scores(run.final) or "Finished, without a final evaluation."
    if "step" in run.final and run.final["step"] < run.config.get("steps", 0):
        text = f"Stopped after {run.final['step']:,} of {run.config['steps']:,} steps. {text}"
    if calibration is not None and calibration.is_overestimating:
        text += " The critic over-estimates (see below)."
    if reward is not None and reward.is_over_optimized:
        text += " The learned reward is over-optimized (see below)."
    return html_page.verdict_box([text])


def _latest_return(run: RunView) -> float | None:
    if not np.isfinite(run.metrics["episode_return"]).any():
        return None
    values = run.curve("episode_return").values
    return float(np.mean([row[np.isfinite(row)][-1] for row in values if np.isfinite(row).any()]))


def _learning_curve_figure(run: RunView, number: int) -> str:
    evaluations = run.evaluation_curve()
    several = f", IQM of {len(run.seeds)} seeds" if len(run.seeds) > 1 else ""
    if np.isfinite(run.metrics["episode_return"]).any():
        line = run.curve("episode_return", f"training return{several}")
    elif evaluations is not None:  # learned from data, without an environment in training
        line, evaluations = dataclasses.replace(evaluations, label=f"greedy evaluation{several}"), None
    else:
        return ""
    by_step = _curve_figure(run, line, evaluations)
    if not np.isfinite(run.seconds(line.steps)).all():
        return by_step
    timed = in_readable_units([run.over_time(curve) for curve in (line, evaluations) if curve is not None])
    by_time = _curve_figure(run, timed[0], timed[1] if evaluations is not None else None)
    return html_page.switch(f"axis{number}", [("over steps", by_step), ("over time", by_time)])


def _curve_figure(run: RunView, line: LearningCurve, evaluations: LearningCurve | None) -> str:
    svgs = [
        inline_svg(
            plots.plot_learning_curves([line], ylabel="episode return", evaluations=evaluations, size=size),
            f"learning curve over {line.x_label}",
        )
        for size in (plots.WIDE_SIZE, plots.NARROW_SIZE)
    ]
    seeds = f" All {len(run.seeds)} seeds train together." if "time" in line.x_label and len(run.seeds) > 1 else ""
    return html_page.figure(*svgs, note=plots.band_caption(len(run.seeds)) + seeds)


def _film_figure(run: RunView) -> str:
    """The film of the policy; without one, a line that says why, or how to get it."""
    if run.config.get("env") is None or run.conversations:
        return ""
    if run.film is None:
        text = f"No film yet: thespis report {run.label} records an episode." if run.final is not None else ""
        return html_page.paragraph(text, "note")
    if not run.film.content:
        return html_page.paragraph(run.film.caption, "note")
    return html_page.animation(run.film.content, run.film.caption)


def _final_section(run: RunView) -> str:
    results = [(mode, (run.final or {}).get(mode)) for mode in ("greedy", "sampled")]
    available = [(mode, result) for mode, result in results if result]
    if not available:
        return ""
    summary = html_page.table(
        ["play", "IQM", "95% interval over seeds", "seeds", "episodes per seed", "episode length"],
        [
            [
                name,
                formatting.format_number(result["iqm"]),
                formatting.format_interval(result["interval"]),
                str(result["seeds"]),
                str(result.get("episodes", "–")),
                formatting.format_number(_finite_mean(formatting.episode_lengths(result))),
            ]
            for name, result in formatting.final_results(run.final or {})
        ],
        numeric_columns=range(1, 6),
    )
    if len(run.seeds) == 1:
        return summary
    svg = inline_svg(
        plots.plot_intervals([_group_summary(mode, result) for mode, result in available]),
        "final returns of every seed",
    )
    note = "Dots: one training seed each, averaged over its episodes. Diamond: IQM. Bar: 95% interval."
    return summary + html_page.figure(svg, note=note, css_class="half") + _per_seed_table(run, available)


def _report_card_section(run: RunView) -> str:
    """Shares of episodes and returns of seats of a conversation."""
    content = (run.final or {}).get("report_card")
    if not content:
        return ""
    card = ReportCard.from_json(content)
    header = ["", "mean", "95% interval over seeds"]
    rows = [list(formatting.format_card_row(row)) for row in card.rows()]
    note = f"{card.num_episodes:,} sampled conversations of each training seed."
    warnings = "".join(html_page.paragraph(warning, "flag") for warning in card.warnings)
    return warnings + html_page.table(header, rows, numeric_columns=range(1, 3)) + html_page.paragraph(note, "note")


def _held_out_section(run: RunView) -> str:
    """The metrics on held-out data: the last ones in a table, and their curves."""
    if not run.held_out:
        return ""
    last = run.held_out[-1]["metrics"]
    rows = [[name.replace("_", " "), *map(formatting.format_number, values)] for name, values in last.items()]
    header = ["metric", *(f"seed {seed}" for seed in run.seeds)]
    table = _reward_model_confidence(last) + html_page.table(header, rows, numeric_columns=range(1, len(header)))
    if len(run.held_out) == 1:
        return table
    charts = [
        html_page.figure(
            inline_svg(plots.plot_small_chart(run.held_out_curve(name)), name), note=name.replace("_", " ")
        )
        for name in last
    ]
    return table + html_page.box("grid", *charts)


def _per_seed_table(run: RunView, results: list[tuple[str, dict[str, Any]]]) -> str:
    count = min(len(result["scores"]) for _, result in results)
    header = ["training seed", *(str(seed) for seed in run.seeds[:count])]
    rows = [
        [f"{mode}, mean", *(formatting.format_number(_finite_mean(scores)) for scores in result["scores"][:count])]
        for mode, result in results
    ]
    return html_page.table(header, rows, numeric_columns=range(1, count + 1))


def _group_summary(mode: str, result: dict[str, Any]) -> GroupSummary:
    bounds = result["interval"]
    means = tuple(_finite_mean(scores) for scores in result["scores"])
    return GroupSummary(mode, means, result["iqm"], (bounds[0], bounds[1]) if bounds else None)


def _calibration_pairs(run: RunView) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
    stored = (run.final or {}).get("calibration")
    if not stored or not stored.get("predicted"):
        return None
    episode = stored.get("episode")
    return (
        np.array(stored["predicted"], np.float64),
        np.array(stored["realised"], np.float64),
        None if episode is None else np.array(episode, np.int64),
    )


def _fit_calibration(run: RunView) -> Calibration | None:
    pairs = _calibration_pairs(run)
    fitted = calibrate(*pairs) if pairs else None
    return fitted if isinstance(fitted, Calibration) else None


def _calibration_section(run: RunView, calibration: Calibration | None) -> str:
    pairs = _calibration_pairs(run)
    if pairs is None:
        return ""
    if calibration is None:
        return html_page.paragraph(calibrate(*pairs).sentence)
    svg = inline_svg(plots.plot_calibration(pairs[0], pairs[1]), "predicted value against realised return")
    discount = run.final["calibration"].get("discount") if run.final else None
    facts = html_page.definition_list(
        [
            ("mean bias (predicted − realised)", formatting.format_number(calibration.bias, 3)),
            (
                "95% interval",
                formatting.format_interval(calibration.interval) if calibration.interval else "too few episodes",
            ),
            ("slope (1 is ideal)", formatting.format_number(calibration.slope, 3)),
            ("correlation", formatting.format_number(calibration.correlation, 3)),
            ("steps compared", f"{calibration.num_steps:,}"),
            ("discount", f"{discount:g}" if discount else "–"),
        ]
    )
    verdict = html_page.paragraph(calibration.sentence, "flag" if calibration.is_overestimating else "")
    note = "Below the line the critic predicted more than the realised return."
    return verdict + html_page.box("columns", html_page.figure(svg, note=note), html_page.box("", facts))


def _learned_reward_section(run: RunView, reward: OverOptimization | None) -> str:
    """The learned reward of a frozen feedback beside the environment's return."""
    if reward is None:
        return ""
    names = {LEARNED: "learned reward of a step", TRUE: "the environment's return of an episode"}
    charts = [
        html_page.figure(inline_svg(plots.plot_small_chart(run.curve(name)), name), note=note)
        for name, note in names.items()
    ]
    verdict = html_page.paragraph(reward.sentence, "flag" if reward.is_over_optimized else "")
    return verdict + html_page.box("grid", *charts)


def _reward_model_confidence(last: dict[str, list[float | None]]) -> str:
    """How sure a reward model is of its held-out answers, and how often it is right; empty for other methods."""
    if not {"confidence", "accuracy"} <= set(last):
        return ""
    sure, right = (_finite_mean(last[name]) for name in ("confidence", "accuracy"))
    facts = f"it is {sure:.0%} sure on average, and right in {right:.0%} of held-out pairs"
    if abs(sure - right) < _MIN_CONFIDENCE_GAP:
        return html_page.paragraph(f"The reward model is calibrated: {facts}.")
    kind = "over-confident" if sure > right else "under-confident"
    return html_page.paragraph(f"The reward model is {kind}: {facts}.", "flag")


def _metric_charts(run: RunView) -> str:
    names = [n for n in ("episode_length", *run.measured_metrics()) if np.isfinite(run.metrics[n]).any()]
    charts = [
        html_page.figure(inline_svg(plots.plot_small_chart(run.curve(name)), name), note=name.replace("_", " "))
        for name in names[:_MAX_METRIC_CHARTS]
    ]
    return html_page.box("grid", *charts) if charts else ""


def _timing_section(run: RunView) -> str:
    timing = dict(run.timing or {})
    total = timing.pop("total", None)
    names = {
        "program": "acting, environment and learning (one program)",
        "exchange": "exchange with workers, and waiting for the slowest",
        "learning": "learning, as far as acting waited for it",
    }
    parts = [
        (names.get(name, name), seconds, formatting.format_duration(seconds))
        for name, seconds in timing.items()
        if seconds
    ]
    if total and total > sum(timing.values()):
        rest = total - sum(timing.values())
        parts += [("other", rest, formatting.format_duration(rest))] if rest > 0.01 * total else []
    total_text = html_page.paragraph(f"{formatting.format_duration(total)} in all.") if total else ""
    return total_text + html_page.stacked_bar(parts) if parts else ""


def _finite_mean(values: Sequence[float | None]) -> float:
    finite = [value for value in values if value is not None and np.isfinite(value)]
    return float(np.mean(finite)) if finite else float("nan")
