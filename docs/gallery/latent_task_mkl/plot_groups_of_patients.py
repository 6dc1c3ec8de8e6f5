"""
Do men and women, old and young, follow one law?
================================================

Diabetes patients in eight groups by sex and age: is the course of the disease told by the same measurements everywhere? Groups of tasks
that get weight share a law; tasks on their own differ.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

from gramplane import LatentTaskMKLRegressor

table = load_diabetes(as_frame=True, scaled=False)
age = np.digitize(table.data["age"], table.data["age"].quantile([0.25, 0.5, 0.75]))
sex = (table.data["sex"] > 1.5).to_numpy().astype(int)
task = np.char.add(
    np.where(sex == 0, "sex 1, ", "sex 2, "),
    np.array(["youngest", "younger", "older", "oldest"])[age],
)
columns = ["bmi", "bp", "s3", "s5"]
train = np.random.default_rng(0).random(len(task)) < 0.6
X = table.data[columns].to_numpy()
model = LatentTaskMKLRegressor(
    [f"linear[{j}]" for j in range(4)], a=2.0, mu=0.1, C=1.0, inverted=True, scale=None
).fit(X[train], table.target[train], task[train])

# %%
figure, axes = plt.subplots(1, 4, figsize=(12, 3.8), sharey=True, layout="constrained")
for j, ax in enumerate(axes):
    picture = ax.imshow(
        model.task_kernel_weights_[j],
        cmap="viridis",
        vmin=0,
        vmax=model.task_kernel_weights_.max(),
    )
    ax.set_title(columns[j])
    ax.set_xticks(range(8), model.tasks_, rotation=90)
axes[0].set_yticks(range(8), model.tasks_)
figure.colorbar(picture, ax=axes, label="weight between tasks")

# %%
# Notice how even the pictures are: one group, that of all eight, has all the weight. These patients follow nearly one law.
# ``inverted=True`` starts from the group of all tasks and leaves tasks out, which is the way to look when most are alike.
for group in model.groups_[:3]:
    print(", ".join(group.tasks), f"weight {group.weight:.3f}")
print(
    f"R2 on the other patients: {model.score(X[~train], table.target[~train], task[~train]):.3f}"
)
