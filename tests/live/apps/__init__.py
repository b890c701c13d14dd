"""Sign-in with real programs, unmodified, with the settings of docs/apps/ copied word for word."""
