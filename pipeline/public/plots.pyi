"""Written by .ci/make_package.py."""

from gramplane.pipeline.records.charts import Chart as Chart
from gramplane.workflows.report.figures import list_charts as list_charts
from gramplane.workflows.report.charts import paint as paint

__all__ = ['Chart', 'list_charts', 'paint']
