"""What people look at: tables, figures, HTML pages."""
