"""Rule ensembles on the lattice of conjunctions."""

from ...records.declared import Profile

PROFILES = (
    Profile(
        "rule-ensemble",
        problem="a short weighted list of IF-THEN rules from all conjunctions of conditions",
        returns="`rules_`: text, vote, weight, rows",
        certificate="all rules, or all up to a length that it names",
        nearest="imodels `RuleFitClassifier`, RIPPER",
        avoid="accuracy alone counts: boosted trees; hundreds of numeric columns",
    ),
)
