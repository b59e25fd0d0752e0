"""The dispatcher: all open runs, all slots, and one pass that hands the idle slots out."""
