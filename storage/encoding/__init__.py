"""Encoding of table columns as features: the kind of each column, the conversion of its values, and the record that applies it again."""
