"""Pictures, tables, HTML and trace."""
