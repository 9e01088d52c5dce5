"""Standard benchmarks: suites of training runs whose results are compared with published ones."""
