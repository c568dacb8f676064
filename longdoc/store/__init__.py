"""Everything between Arrow tables and finished files: schemas, parts, the commit, and what reads them back."""
