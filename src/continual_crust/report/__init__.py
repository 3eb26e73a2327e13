"""What people look at: tables, figures, one HTML page. Nothing else in the package imports this room."""
