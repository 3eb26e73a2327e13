"""What people look at: tables, figures, one HTML page. Studies reach in only to leave images of a run's memory."""
