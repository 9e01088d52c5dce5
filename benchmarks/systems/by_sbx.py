"""SBX: Stable-Baselines3's interface on JAX."""

import sbx
from by_sb3 import main

main(sbx)
