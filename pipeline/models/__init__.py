"""Models that several systems share: record, construction, decision values."""
