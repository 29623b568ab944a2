"""The page of a run in Chromium: clicks, sliders, keys, narrow windows, and no errors."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pytest

pytest.importorskip("fastapi")

from osculate.cli.checkpoint import MODEL
from osculate.cli.options import DataOptions
from osculate.serving.explorer import PAGES
from osculate.serving.settings import TOKEN
from tests.serving.processes import started
from tests.serving.runs import SCRIPT, saved_run
from tests.serving.test_settings import SECRET

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
#: True when the words about the code of an autoencoder are others than before.
CHANGED = "before => document.querySelector('[role=status].soft').textContent != before"
#: Milliseconds from a click at a share of the width of the plane to the words and the image of its code.
CLICK = """share => new Promise((done) => {
  const [plane, words] = ['[role=application]', '[role=status].soft'].map((each) => document.querySelector(each));
  const box = plane.getBoundingClientRect();
  const place = { clientX: box.left + share * box.width, clientY: box.top + box.height / 3 };
  const began = performance.now();
  const seen = new MutationObserver(() => requestAnimationFrame(() => {
    seen.disconnect();
    done(performance.now() - began);
  }));
  seen.observe(words, { childList: true });
  plane.dispatchEvent(new MouseEvent('click', place));
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the page is tried in a browser by playwright")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as started_:
        found = started_.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@contextmanager
def opened(browser: Any, folder: Path, quiet: bool = True, **options: Any) -> Iterator[Any]:
    """The page of a run, which must not ask for anything elsewhere, and in the end must not have complained."""
    environment, words = options.pop("environment", {}), options.pop("words", ())
    with started("explore", folder, *words, **environment) as server:
        context = browser.new_context(**options)
        page, said = context.new_page(), []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: request.url.startswith((server.url, "data:")) or said.append(request.url))
        page.goto(server.url)
        yield page
        context.close()
    assert not (quiet and said), said


def slide(page: Any, name: str, key: str = "ArrowRight", times: int = 1) -> str:
    """Move a slider by a key, and return what it says."""
    slider = page.get_by_role("slider", name=name)
    slider.focus()
    for _ in range(times):
        page.keyboard.press(key)
    return slider.get_attribute("aria-valuetext")


def assert_described(page: Any, *titles: str) -> None:
    """Each chart has a sentence with its main numbers."""
    for title in titles:
        sentence = page.get_by_role("img", name=title).get_attribute("aria-label")
        assert sentence.startswith(f"{title}: ")
        assert any(letter.isdigit() for letter in sentence)
        assert not any(word in sentence for word in ("NaN", "undefined", "Infinity"))


def test_pages_name_only_each_other() -> None:
    names = {path.name for path in PAGES.iterdir()}
    for path in PAGES.glob("*.js"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("import ") or "import(" in line:
                assert line.split('"./')[1].split('"')[0] in names


@pytest.mark.slow
def test_a_classifier(browser: Any, classifier: Path) -> None:
    with opened(browser, classifier) as page:
        buttons = page.locator(".list button")
        buttons.nth(1).click()
        assert buttons.nth(1).get_attribute("aria-pressed") == "true"
        assert buttons.nth(0).get_attribute("aria-pressed") == "false"
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert buttons.nth(2).get_attribute("aria-pressed") == "true"
        assert page.get_by_text(SCRIPT, exact=True).first.is_visible()
        assert slide(page, "Bins", "ArrowLeft", 10) == "2"
        rates = page.locator("section", has_text="Entropy in and out").get_by_role("cell").first
        before = rates.inner_text()
        slide(page, "Threshold", "Home")
        assert rates.inner_text() == "100.0 %" != before
        assert_described(page, "reliability", "histogram of entropies")


@pytest.mark.slow
def test_a_classifier_without_a_posterior(browser: Any, classifier: Path, tmp_path: Path) -> None:
    (tmp_path / MODEL).write_bytes((classifier / MODEL).read_bytes())
    with opened(browser, tmp_path, words=("--data", str(classifier / "data.npz"))) as page:
        page.get_by_text("run osculate fit").wait_for()
        assert page.get_by_role("img", name="reliability").locator("path.first").count() == 1
        assert page.get_by_role("img", name="reliability").locator("path.second").count() == 0
        assert page.get_by_role("combobox", name="Entropy of").count() == 0


@pytest.mark.slow
def test_a_table(browser: Any, table: Path) -> None:
    with opened(browser, table) as page:
        chart = page.get_by_role("img", name="partial dependence")
        chart.get_by_text("size", exact=True).wait_for()
        page.get_by_role("combobox", name="Of", exact=True).select_option("colour")
        chart.get_by_text("colour", exact=True).wait_for()
        assert chart.locator("circle").count() == 2
        assert chart.get_by_text("blue", exact=True).is_visible()
        page.get_by_role("combobox", name="Against").select_option("colour")
        assert page.get_by_role("img", name="residuals").get_by_text("red", exact=True).is_visible()
        assert_described(page, "partial dependence", "residuals", "coverage", "predictions with bands")


@pytest.mark.slow
def test_a_regression(browser: Any, regressor: Path) -> None:
    with opened(browser, regressor) as page:
        inside = page.locator("section", has_text="Coverage").get_by_role("cell").first
        assert slide(page, "Level", "End") == "99.0 %"
        most = float(inside.inner_text().split()[0])
        slide(page, "Level", "Home")
        assert float(inside.inner_text().split()[0]) < most
        chart = page.get_by_role("img", name="partial dependence")
        chart.get_by_text("input 1", exact=True).wait_for()
        page.get_by_role("combobox", name="Of", exact=True).select_option("input 2")
        chart.get_by_text("input 2", exact=True).wait_for()
        assert slide(page, "Width of the band", "ArrowRight", 5) == "2.5"
        assert_described(page, "partial dependence", "residuals", "coverage", "predictions with bands")


@pytest.mark.slow
def test_an_autoencoder(browser: Any, autoencoder: Path) -> None:
    with opened(browser, autoencoder) as page:
        words, plane = page.locator("[role=status].soft"), page.get_by_role("application")
        words.get_by_text("Code").wait_for()
        before = words.inner_text()
        plane.click(position={"x": 40, "y": 60})
        page.wait_for_function(CHANGED, arg=before)
        value = page.get_by_role("slider", name="Number 1").get_attribute("aria-valuetext")
        plane.focus()
        page.keyboard.press("Shift+ArrowRight")
        assert page.get_by_role("slider", name="Number 1").get_attribute("aria-valuetext") != value
        before = words.inner_text()
        slide(page, "Number 2", "ArrowLeft", 3)
        page.wait_for_function(CHANGED, arg=before)
        page.get_by_label("Show").select_option("decoded images")
        assert page.locator(".plane canvas").nth(1).is_visible()
        assert not page.locator(".plane svg > circle").first.is_visible()


@pytest.mark.release
def test_a_click_on_an_autoencoder_of_mnist_takes_under_200_milliseconds(
    browser: Any, data_folder: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    if not (data_folder / "mnist").is_dir():
        pytest.skip(f"{data_folder} holds no mnist")
    saved_run(tmp_path, DataOptions(data="mnist", train_size=100), "conv_autoencoder", 0.5)
    with opened(browser, tmp_path) as page:
        page.locator("[role=status].soft").get_by_text("Code").wait_for()
        times = [page.evaluate(CLICK, (place + 1) / 22) for place in range(21)]
    record_property("milliseconds from a click to its image, median of 21", round(median(times), 1))
    assert median(times) < 200


@pytest.mark.slow
def test_a_reconstruction(browser: Any, reconstruction: Path) -> None:
    with opened(browser, reconstruction) as page:
        words, plane = page.locator("main [role=status]"), page.get_by_role("application")
        plane.click(position={"x": 3, "y": 3})
        assert words.inner_text().startswith("Row 1, column 1:")
        plane.focus()
        for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowLeft", "ArrowLeft"):
            page.keyboard.press(key)
        assert words.inner_text().startswith("Row 3, column 1:")
        assert slide(page, "Sample") == "2"
        assert page.get_by_role("img", name="sample").is_visible()
        page.get_by_label("Show").select_option("distance from the truth")
        slide(page, "Row", "End")
        assert words.inner_text().startswith("Row 12,")
        assert_described(page, "row 12 with error bars")


@pytest.mark.slow
def test_a_narrow_dark_window_and_a_token(browser: Any, classifier: Path) -> None:
    look = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "environment": {TOKEN: SECRET}}
    with opened(browser, classifier, quiet=False, **look) as page:  # the browser reports the status 401
        page.get_by_label("Token").fill("a wrong token")
        page.keyboard.press("Enter")
        page.get_by_text("the header Authorization must be Bearer").wait_for()
        page.get_by_label("Token").fill(SECRET)
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Reliability").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
        assert SECRET not in page.url
