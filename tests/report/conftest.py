"""A real browser that opens the page whose path a module's fixture ``path`` is."""

import pytest

from reports import CHROMIUM


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, path):
    """A function that opens the page; the test fails if the page logs an error."""
    errors, pages = [], []

    def on_console(message):
        if message.type == "error":
            errors.append(message.text)

    def on_request(request):
        if request.url.startswith("http"):
            errors.append(request.url)

    def open_page(width=1200, height=900, **options):
        page = browser.new_page(viewport={"width": width, "height": height}, **options)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", on_console)
        page.on("request", on_request)
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert errors == []
