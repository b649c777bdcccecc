"""What tests do with a page in a browser."""

import time


def opened(browser, address, width=1280):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    # A page of an earlier test may still ask its server, which is gone; its complaints are not of this page.
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(address)
    wait_for(browser, "document.documentElement.dataset.ready === 'yes'")
    return browser


def wait_for(browser, condition, seconds=20):
    deadline = time.monotonic() + seconds
    while not browser.execute_script(f"return {condition}"):
        assert time.monotonic() < deadline, condition
        time.sleep(0.02)


def click(browser, selector):
    # As a script: what is sticky may lie over what is to be clicked.
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def value(browser, expression):
    return browser.execute_script(f"return {expression}")
