"""certificate"""
