"""Models shared by several methods: record, construction, decision values."""
