"""REValueD: regularised ensemble value-decomposition for factorisable Markov decision processes."""
