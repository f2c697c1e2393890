"""A page as people look at it: wide by day, and on a phone by night; whatever is done to it, it must not complain."""

from test_report_page import open_page

SCREENS = [(1280, "light"), (390, "dark")]


def looked_at(browser, report, look):
    """The page for one test; afterwards nothing was complained of, run from a name, or stuck out sideways."""
    width, scheme = look
    opened = open_page(browser, report, width=width, scheme=scheme)
    yield opened
    assert opened.complaints == [] and opened.evaluate("window.hacked") is None
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.context.close()
