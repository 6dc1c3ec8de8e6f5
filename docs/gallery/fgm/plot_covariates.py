"""
Keep age and sex in every model, and select the rest
====================================================

Whoever studies a disease asks what matters *beside* age and sex. Covariates are columns that are in every model without a penalty; only
the others are selected.
"""

# %%
# The progression of diabetes a year later; one further measurement per round.
import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from gramplane import FGMRegressor

table = load_diabetes(as_frame=True, scaled=False)
known = ["age", "sex"]
train, test, y, y_test = train_test_split(
    table.data, table.target, test_size=0.3, random_state=0
)
features = train.columns.drop(known)

alone = FGMRegressor(B=1, max_rounds=4).fit(train, y)
beside = FGMRegressor(B=1, max_rounds=4).fit(
    train[features], y, covariates=train[known]
)
print(
    "free choice:       ",
    train.columns[alone.selected_].tolist(),
    f"test R2 {alone.score(test, y_test):.3f}",
)
score = beside.score(test[features], y_test, covariates=test[known])
print(
    "beside age and sex:", features[beside.selected_].tolist(), f"test R2 {score:.3f}"
)

# %%
# Effects per standard deviation, so that they can be compared.
effects = dict(
    zip(
        features[beside.selected_],
        beside.coef_[0, beside.selected_]
        * train[features].std().iloc[beside.selected_],
        strict=True,
    )
)
held = dict(zip(known, beside.covariate_coef_[0] * train[known].std(), strict=True))
figure, axes = plt.subplots(figsize=(6.5, 3), layout="constrained")
axes.barh(list(held), list(held.values()), color="grey", label="covariates, no penalty")
axes.barh(list(effects), list(effects.values()), color="tab:blue", label="selected")
axes.axvline(0, color="black", linewidth=0.8)
axes.set(
    xlabel="change of the progression per standard deviation",
    title="Body mass and blood values, age and sex held",
)
axes.legend()

# %%
# Notice that age and sex have coefficients although a free choice may leave them out: they were not asked to earn their place. Who
# predicts gives them, too.
