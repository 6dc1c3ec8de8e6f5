"""
Keep age and sex in the model, and select the rest
==================================================

Covariates are columns that stay in every model without a penalty; FGM selects
from the other columns. Use them to ask which measurements matter *in addition
to* age and sex.
"""

# %%
# The outcome is the progression of diabetes after one year. Each round adds
# one measurement.
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
selected = ", ".join(train.columns[alone.selected_])
score = alone.score(test, y_test)
print(f"free selection:        {selected} (test R² {score:.3f})")
selected = ", ".join(features[beside.selected_])
score = beside.score(test[features], y_test, covariates=test[known])
print(f"age and sex kept, and: {selected} (test R² {score:.3f})")

# %%
# Weights per standard deviation can be compared with each other:
effects = dict(
    zip(
        features[beside.selected_],
        beside.coef_[0, beside.selected_]
        * train[features].std().iloc[beside.selected_],
        strict=True,
    )
)
held = dict(
    zip(known, beside.covariate_coef_[0] * train[known].std(), strict=True)
)
figure, axes = plt.subplots(figsize=(6.5, 3), layout="constrained")
axes.barh(list(held), list(held.values()), color="grey", label="covariate")
axes.barh(
    list(effects), list(effects.values()), color="tab:blue", label="selected"
)
axes.axvline(0, color="black", linewidth=0.8)
axes.set(
    xlabel="change of progression per standard deviation",
    title="What matters in addition to age and sex",
)
axes.legend()

# %%
# Age and sex have weights although the free selection leaves them out. To
# predict, pass their columns, too: ``predict(X, covariates=...)``.
