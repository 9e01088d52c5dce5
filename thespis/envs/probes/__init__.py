"""Tiny worlds whose values are known; together they catch the mistakes that recur in this field."""
