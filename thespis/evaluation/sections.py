"""The part of a report that is about one run: verdict, curves, results, critic, settings, provenance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thespis.evaluation import page, particulars, plots, talks, view, words
from thespis.evaluation.calibration import Calibration, calibrate
from thespis.evaluation.comparison import Summary
from thespis.evaluation.style import inline
from thespis.evaluation.view import RunView

_SMALL_CHARTS = 24


def title(run: RunView) -> str:
    """What was trained on what."""
    return f"{run.method} on {run.config.get('env') or 'a dataset'}"


def run_page(run: RunView) -> str:
    """Everything known of one run, as HTML."""
    fitted = _calibration(run)
    return "".join(
        [
            f"<h1>{page.escape(title(run))}</h1>",
            page.paragraph(_facts(run), "sub"),
            _verdict(run, fitted),
            page.section("Learning", _learning_curve(run)),
            page.section("Final play", _final(run)),
            page.section("Conversations", talks.shown(run.conversations)),
            page.section("Critic calibration", _calibration_section(run, fitted)),
            page.section("Metrics", _small_charts(run)),
            page.section("Time", _timing(run)),
            page.section("Settings", *particulars.settings(run)),
            page.section("Implementation details that are on", page.listing(run.config.get("details") or [])),
            page.section("Where this comes from", page.listing(particulars.bibliography(run))),
            page.section("Versions and machine", page.pairs(particulars.versions(run))),
            page.section("Repeat this run", f"<pre>{page.escape(view.command(run.config))}</pre>"),
        ]
    )


def _facts(run: RunView) -> str:
    config = run.config
    facts = [
        run.label,
        f"{config['steps']:,} environment steps per seed" if "steps" in config else "",
        words.count(len(run.seeds), "training seed"),
        words.count(config["envs"], "environment") + " per seed" if "envs" in config else "",
        particulars.device(run),
    ]
    return " · ".join(fact for fact in facts if fact)


def _verdict(run: RunView, fitted: Calibration | None) -> str:
    if run.final is None:
        planned = f" of {run.config['steps']:,}" if "steps" in run.config else ""
        text = f"Not finished: {run.step:,}{planned} environment steps per seed so far."
        last = _latest_return(run)
        return page.verdict([text + (f" Training return {words.number(last)}." if last is not None else "")], "waiting")
    text = words.verdict(run.final) or "Finished, without a final evaluation."
    if "step" in run.final and run.final["step"] < run.config.get("steps", 0):
        text = f"Stopped after {run.final['step']:,} of {run.config['steps']:,} steps. {text}"
    if fitted is not None and fitted.overestimates:
        text += " The critic over-estimates (see below)."
    return page.verdict([text])


def _latest_return(run: RunView) -> float | None:
    if not np.isfinite(run.metrics["episode_return"]).any():
        return None
    values = run.curve("episode_return").values
    return float(np.mean([row[np.isfinite(row)][-1] for row in values if np.isfinite(row).any()]))


def _learning_curve(run: RunView) -> str:
    if not np.isfinite(run.metrics["episode_return"]).any():
        return ""
    several = len(run.seeds) > 1
    line = run.curve("episode_return", "training return" + (f", IQM of {len(run.seeds)} seeds" if several else ""))
    evaluations = run.evaluation_curve()
    svgs = [
        inline(
            plots.curves([line], ylabel="episode return", evaluations=evaluations, size=size),
            "learning curve",
        )
        for size in (plots.WIDE, plots.NARROW)
    ]
    return page.picture(*svgs, note=plots.band_note(len(run.seeds)))


def _final(run: RunView) -> str:
    ways = [(way, (run.final or {}).get(way)) for way in ("greedy", "sampled")]
    known = [(way, result) for way, result in ways if result]
    if not known:
        return ""
    summary = page.table(
        ["play", "IQM", "95% interval over seeds", "seeds", "episodes per seed", "episode length"],
        [
            [
                way,
                words.number(result["iqm"]),
                words.interval(result["interval"]),
                str(result["seeds"]),
                str(result.get("episodes", "–")),
                words.number(_mean(words.lengths(result))),
            ]
            for way, result in known
        ],
        numeric=range(1, 6),
    )
    if len(run.seeds) == 1:
        return summary
    svg = inline(plots.intervals([_summary(way, result) for way, result in known]), "final returns of every seed")
    note = "Dots: one training seed each, averaged over its episodes. Diamond: IQM. Bar: 95% interval."
    return summary + page.picture(svg, note=note, kind="half") + _per_seed(run, known)


def _per_seed(run: RunView, known: list[tuple[str, dict[str, Any]]]) -> str:
    count = min(len(result["scores"]) for _, result in known)
    header = ["training seed", *(str(seed) for seed in run.seeds[:count])]
    rows = [
        [f"{way}, mean", *(words.number(_mean(scores)) for scores in result["scores"][:count])] for way, result in known
    ]
    return page.table(header, rows, numeric=range(1, count + 1))


def _summary(way: str, result: dict[str, Any]) -> Summary:
    bounds = result["interval"]
    means = tuple(_mean(scores) for scores in result["scores"])
    return Summary(way, means, result["iqm"], (bounds[0], bounds[1]) if bounds else None)


def _pairs(run: RunView) -> tuple[np.ndarray, np.ndarray, np.ndarray | None] | None:
    stored = (run.final or {}).get("calibration")
    if not stored or not stored.get("predicted"):
        return None
    episode = stored.get("episode")
    return (
        np.array(stored["predicted"], np.float64),
        np.array(stored["realised"], np.float64),
        None if episode is None else np.array(episode, np.int64),
    )


def _calibration(run: RunView) -> Calibration | None:
    known = _pairs(run)
    fitted = calibrate(*known) if known else None
    return fitted if isinstance(fitted, Calibration) else None


def _calibration_section(run: RunView, fitted: Calibration | None) -> str:
    known = _pairs(run)
    if known is None:
        return ""
    if fitted is None:
        return page.paragraph(calibrate(*known).sentence)
    svg = inline(plots.calibration(known[0], known[1]), "predicted value against realised return")
    discount = run.final["calibration"].get("discount") if run.final else None
    facts = page.pairs(
        [
            ("mean bias (predicted − realised)", words.number(fitted.bias, 3)),
            ("95% interval", words.interval(fitted.interval) if fitted.interval else "too few episodes"),
            ("slope (1 is ideal)", words.number(fitted.slope, 3)),
            ("correlation", words.number(fitted.correlation, 3)),
            ("steps compared", f"{fitted.steps:,}"),
            ("discount", f"{discount:g}" if discount else "–"),
        ]
    )
    verdict = page.paragraph(fitted.sentence, "flag" if fitted.overestimates else "")
    note = "Below the line the critic promised more than came."
    return f'{verdict}<div class="beside">{page.picture(svg, note=note)}<div>{facts}</div></div>'


def _small_charts(run: RunView) -> str:
    names = [n for n in ("episode_length", *run.measured()) if np.isfinite(run.metrics[n]).any()]
    charts = [
        page.picture(inline(plots.small(run.curve(name)), name), note=name.replace("_", " "))
        for name in names[:_SMALL_CHARTS]
    ]
    return f'<div class="grid">{"".join(charts)}</div>' if charts else ""


def _timing(run: RunView) -> str:
    timing = dict(run.timing or {})
    total = timing.pop("total", None)
    names = {
        "program": "acting, environment and learning (one program)",
        "exchange": "exchange with workers, and waiting for the slowest",
        "learning": "learning, as far as acting waited for it",
    }
    parts = [(names.get(name, name), spent, words.duration(spent)) for name, spent in timing.items() if spent]
    if total and total > sum(timing.values()):
        rest = total - sum(timing.values())
        parts += [("other", rest, words.duration(rest))] if rest > 0.01 * total else []
    took = page.paragraph(f"{words.duration(total)} in all.") if total else ""
    return took + page.bar(parts) if parts else ""


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None and np.isfinite(value)]
    return float(np.mean(known)) if known else float("nan")
