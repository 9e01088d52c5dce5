"""The AI Economist."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.evidence.benches.taxation import BASELINE, BENCH, LEARNED_ENV, NO_TAXES_ENV, SAEZ_ENV
from thespis.evidence.comparisons import Comparison, NotApplicable, NoWorse
from thespis.evidence.measures import final_return
from thespis.evidence.paired_verdict import plan_looks
from thespis.evidence.paper import Arm, Fidelity, Paper

_ENV_MODULE = "thespis.papers.ai_economist.envs"

PAPER = Paper(
    id="ai-economist",
    name="AI Economist",
    citation=Citation("The AI Economist", "Zheng et al.", 2021, "arXiv:2108.02755"),
    family="multi-agent",
    summary="A planner that sets the tax rates of income brackets, and workers of different skill that choose how much "
    "to work, learn at the same time with PPO, each side adapting to the other.",
    claim="In one-step economies the planner recovers the optimal taxes of theory, and social welfare is higher than "
    "without taxes and with fixed schedules.",
    parts=(
        "thespis.papers.ai_economist.envs:Economy",
        "thespis.papers.ai_economist.envs:saez_tax_rates",
        "thespis.papers.ai_economist.envs:EqualityTimesProductivity",
        "thespis.methods.multi_agent.ippo:IPPO",
        "thespis.papers.ai_economist.measures:welfare_gain",
    ),
    command=f"thespis train ippo --env {_ENV_MODULE}:Economy --steps 48128 "
    "--set learning_rate=2e-3 ent_coef=0.1 hidden_sizes=32 num_epochs=4 minibatch_size=1024 num_steps=2 num_envs=128",
    miniature=BENCH.trial(
        arms=(
            Arm("planner", BASELINE, env=LEARNED_ENV),
            Arm("federal taxes", BASELINE),
            Arm("no taxes", BASELINE, env=NO_TAXES_ENV),
            Arm("Saez's taxes", BASELINE, env=SAEZ_ENV),
        ),
        looks=plan_looks((20, 40)),
        headline=Comparison("planner", "federal taxes", final_return()),
        mechanisms=(
            Comparison("planner", "no taxes", final_return()),
            NoWorse("planner", "Saez's taxes", final_return(), margin=0.05),
        ),
        context=(
            Comparison("planner", "Saez's taxes", final_return()),
            NotApplicable(
                "workers game a fixed schedule over time", "the economies of gathering, trading and building"
            ),
        ),
    ),
    remarks="The economy has eight workers, three brackets, tax rates in steps of 0.1 and a labor elasticity of 0.5; "
    "the authors use the seven brackets of the United States and other skills. Social welfare is mean utility weighted "
    "by the inverse of income. Workers learn under every schedule, with the same settings: under the rates that the "
    "planner learns, under the federal ones (10, 24 and 37%), under none, and under Saez's (56, 58 and 36%, from his "
    "formula for brackets). If workers chose optimally, welfare would be 1.68 without taxes, 2.12 with federal ones "
    "and 2.37 with Saez's. The margin, 0.05, is a fifth of what lies between the last two. Planner and workers learn "
    "together from the first step: the paper's curriculum, which introduces taxes slowly, is left out, but entropy has "
    "a larger weight than in an earlier trial, as the authors' planner has at first. With a tenth of it and a learning "
    "rate of 3e-3 the planner had a welfare of 2.0 after half of these steps in one look, and of 1.8 at the end of "
    "another: it probably settles before workers have learned. Saez's taxes end below what they would earn with "
    "optimal labor, as workers have not quite learned to answer them, and level with the planner's or a little below: "
    "rates that suit the labor of learners need not be those of theory. The economies in space and time (gathering, "
    "trading, building) are not implemented, nor is equality times productivity tried again.",
    fidelity=(
        Fidelity("steps", "the planner sets rates in the first step, workers choose labor in the second"),
        Fidelity("redistribution", "marginal rates by brackets; everybody gets an equal share of all taxes"),
        Fidelity("welfare", "utilities weighted by the inverse of income before taxes, or of 1 if that is larger"),
        Fidelity(
            "utility",
            "income minus labor to a power, 2 by default",
            "income minus a third of labor to the power of 3: an elasticity of 0.5",
        ),
        Fidelity("labor", "up to 100 hours, in hours", "26 levels from 0 to 2.5"),
        Fidelity("skills", "means of sorted Pareto samples, at most 3", "eight values from 1 to 5"),
        Fidelity("rates", "seven federal brackets, steps of 0.05", "three brackets, steps of 0.1 up to 0.9"),
        Fidelity(
            "Saez's taxes",
            "his formula, with elasticities estimated from past incomes",
            "his formula, with the known elasticity",
        ),
        Fidelity(
            "learners",
            "PPO; workers share a network, and the planner has its own; values of both",
            "the same, with hidden layers of 32 units, without memory",
        ),
        Fidelity(
            "PPO",
            "rates of 3e-4 and 1e-4, clip range 0.3, one epoch, discount 0.998 and lambda 0.98 (economies in time)",
            "2e-3, 0.2, four epochs; there is one decision in an episode",
        ),
        Fidelity(
            "curriculum",
            "workers first learn without taxes, then the largest rate rises; the planner's entropy weight falls from 2 "
            "to 0.125",
            "none; an entropy weight of 0.1 for normalized advantages",
        ),
    ),
)
