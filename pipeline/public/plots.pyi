"""Written by .ci/make_package.py."""

from gramplane.pipeline.records.charts import Chart as Chart
from gramplane.workflows.report.figures import list_charts as list_charts
from gramplane.workflows.report.charts import paint as paint
from gramplane.workflows.report.displays import GapDisplay as GapDisplay
from gramplane.workflows.report.displays import GroupsDisplay as GroupsDisplay
from gramplane.workflows.report.displays import MapDisplay as MapDisplay
from gramplane.workflows.report.displays import PathDisplay as PathDisplay
from gramplane.workflows.report.displays import RulesDisplay as RulesDisplay
from gramplane.workflows.report.displays import WeightsDisplay as WeightsDisplay

__all__ = ['Chart', 'GapDisplay', 'GroupsDisplay', 'MapDisplay', 'PathDisplay', 'RulesDisplay', 'WeightsDisplay', 'list_charts', 'paint']
