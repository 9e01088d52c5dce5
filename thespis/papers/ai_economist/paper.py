"""The AI Economist."""

from __future__ import annotations

from thespis.core.records import Citation
from thespis.data.feeds import Rollouts
from thespis.evidence.claims import MinimumScore
from thespis.evidence.paper import Arm, Paper, Trial
from thespis.methods.multi_agent.ippo import IPPO
from thespis.methods.online.ppo import PPO
from thespis.papers.ai_economist.measures import welfare_gain

_ENV_MODULE = "thespis.papers.ai_economist.envs"
_IPPO = IPPO(
    PPO(
        learning_rate=1e-3,
        ent_coef=0.01,
        hidden_sizes=(32, 32),
        num_epochs=4,
        minibatch_size=512,
        feed=Rollouts(num_steps=8, num_envs=64),
    )
)
_UTILITARIAN_ARM, _EQUALITY_ARM = "planner of utility", "planner of equality times productivity"

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
    command=f"thespis train ippo --env {_ENV_MODULE}:Economy --steps 60000 "
    "--set learning_rate=1e-3 hidden_sizes=32,32 num_steps=8 num_envs=64",
    miniature=Trial(
        arms=(Arm(_UTILITARIAN_ARM, _IPPO), Arm(_EQUALITY_ARM, _IPPO, env=f"{_ENV_MODULE}:EQUALITY_ECONOMY")),
        envs=(f"{_ENV_MODULE}:Economy",),
        steps=60_000,
        claims=(
            MinimumScore(_UTILITARIAN_ARM, welfare_gain("no taxes"), 0.0),
            MinimumScore(_UTILITARIAN_ARM, welfare_gain("progressive taxes"), 0.0),
            MinimumScore(_UTILITARIAN_ARM, welfare_gain("Saez's taxes"), -0.02),
            MinimumScore(_EQUALITY_ARM, welfare_gain("no taxes"), 0.0),
            MinimumScore(_EQUALITY_ARM, welfare_gain("Saez's taxes"), -0.02),
        ),
        seeds_per_look=3,
        max_looks=1,
        num_episodes=2,
    ),
    remarks="The economy has eight workers, three brackets, tax rates in steps of 0.1 and a labor elasticity of 0.5; "
    "the authors use the seven brackets of the United States and other skills. Learned taxes are evaluated with the "
    "labor learned under them. No taxes, progressive taxes (10, 24 and 37%, as in the United States) and Saez's taxes "
    "(56, 58 and 36%, from his formula for brackets) are evaluated with optimal labor, which favors them. Saez's taxes "
    "are derived for utility weighted by the inverse of income, where a search over all rates in steps of 0.3 finds "
    "0.1% more welfare; for equality times productivity they are not optimal. Recovering them means reaching their "
    "welfare within 2%. Planner and workers learn together from the first step: the paper's curriculum, which "
    "introduces taxes slowly, is left out. The economies in space and time (gathering, trading, building), and how "
    "taxes are gamed there, are not implemented. In a first run of another seed with a learning rate of 3e-3, the "
    "planner's welfare rose to 2.44, above that of optimal labor under the theoretical rates (2.37), and fell to 2.17 "
    "at the end; the learning rate here is a third of that. Not shown: planners of utility stay 2.1 to 3.0% below "
    "Saez's taxes, where 2% were declared. Checked again: payments, best responses and the formula agree with brute "
    "force. These planners set rates of 80 or 90, 90 and 40%. With optimal labor these give a welfare of 2.32 to 2.36, "
    "and Saez's taxes 2.37; with the learned labor, which is within two labor levels of the optimum, 0.2 to 1.7% less. "
    "Likely cause: the planner probably converged while workers still worked more than is best for them, which the "
    "curriculum that was left out is meant to prevent. Planners of equality times productivity end above Saez's taxes "
    "in all seeds, one of them because its workers work more than is best for them; three seeds that differ so much do "
    "not decide the claim.",
)
