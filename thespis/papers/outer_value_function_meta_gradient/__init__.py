"""Meta-gradients of the discount, with and without a critic of the outer discount."""
