"""The tutorial's image reconstruction: one file a table or figure, beside what they share."""
