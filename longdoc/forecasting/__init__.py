"""Forecasts of time: what a document's work is (`costs`), what this machine takes for it (`calibration`)."""
