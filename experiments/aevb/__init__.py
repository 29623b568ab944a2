"""Auto-encoding variational Bayes: one file a table or figure, beside what they share."""
