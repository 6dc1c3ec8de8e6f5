"""Parameters, contexts and checks that all of the pipeline knows."""
