"""Columns of a table as features: what each is, how its values become numbers, and the record that applies it again."""
