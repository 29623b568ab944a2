"""Methods across the documents: one file a table or figure, beside what they share."""
