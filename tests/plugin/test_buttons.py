"""The page's buttons, pressed in a real browser."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from airflow_provider.storage.discarding import find_discard
from tests.plugin.conftest import Site
from tests.support.browser import Person, chromium, complaints, picture

pytestmark = pytest.mark.process


def test_the_buttons_ask_first(tmp_path: Path, site: Site) -> None:
    """Escape changes nothing; a confirmed discard is said, and the job starts afresh; a release deletes."""
    run = site.run("a b fail")
    with chromium(tmp_path / "profile") as browser:
        person = Person(browser)
        site.log_in(browser)
        browser.get(f"{site.url}/spark-recovery/?{urlencode(run.query())}")
        person.click("//button[@id='discard']")
        assert browser.switch_to.active_element.text == "Cancel"
        ActionChains(browser).send_keys(Keys.ESCAPE).perform()
        assert not browser.find_element(By.ID, "confirm").is_displayed()
        assert find_discard(site.store, run.job.prefix, 1) is None
        for button, said in (("discard", "starts afresh"), ("release", "8 partitions deleted")):
            person.click(f"//button[@id='{button}']")
            person.click("//button[@id='confirm-yes']")
            person.wait_for(said, lambda said=said: said in person.text("#notices [data-notice=done]"))
            picture(browser, button)
        assert find_discard(site.store, run.job.prefix, 1) is not None
        assert "was discarded by ann" in person.text("#notices [data-notice=discard]")
        assert complaints(browser) == []
