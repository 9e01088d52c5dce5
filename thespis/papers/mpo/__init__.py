"""MPO: an auditor looks at the policy's texts now and then, and revises the rubric that rewards them."""
