"""Records used throughout the pipeline: parameters, data sets, charts, views of runs."""
