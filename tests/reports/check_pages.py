"""What check_html.sh asks of the pages in a folder. Each check is a function whose first line of doc is its sentence."""
import pathlib
import re
import sqlite3
import sys
import traceback

from browser import Browser

folder = pathlib.Path(sys.argv[1])
SIZES = {"1280": dict(width=1280), "390": dict(width=390, touch=True), "dark": dict(width=1280, dark=True)}
PAGES = ("one", "pipeline", "ranks", "many", "plan", "stages", "compare")


def database(name):
    return sqlite3.connect(f"file:{folder / name}.db?mode=ro", uri=True)


def page_of(browser, name):
    browser.open(folder / f"{name}.html")
    return browser


# Texts of a picture that lie on each other, elements wider than the window, words cut off by their box.
OVERLAPS = """(() => {
  const found = [], shown = element => element.getClientRects().length > 0;
  for (const svg of [...document.querySelectorAll("figure svg.picture")].filter(shown)) {
    const boxes = [...svg.querySelectorAll("text")].filter(shown).map(text => [text.textContent, text.getBoundingClientRect()]);
    boxes.forEach(([a, p], i) => boxes.slice(0, i).forEach(([b, q]) => {
      const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left), high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (wide > 1 && high > 3) found.push(`${svg.classList}: "${a}" and "${b}"`);
    }));
    const frame = svg.getBoundingClientRect();
    for (const [text, box] of boxes)
      if (box.left < Math.min(frame.left, 0) - 1 || box.right > Math.max(frame.right, innerWidth) + 1) found.push(`${svg.classList}: "${text}" is cut off`);
  }
  const blocks = [...document.querySelectorAll("h1, h2, p, dt, dd, figure, .scroll, button, .legend li, summary, .who li")].filter(shown);
  for (const block of blocks.filter(block => !block.closest("table")))
    if (block.getBoundingClientRect().right > innerWidth + 1) found.push(`${block.tagName} "${block.textContent.slice(0, 40)}" is wider than the page`);
  const lines = blocks.filter(block => /^(H1|H2|P|DT|DD|BUTTON|LI|SUMMARY)$/.test(block.tagName)).map(block => [block, block.getBoundingClientRect()]);
  lines.forEach(([a, p], i) => lines.slice(0, i).forEach(([b, q]) => {
    const wide = Math.min(p.right, q.right) - Math.max(p.left, q.left), high = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
    if (wide > 1 && high > 3 && !a.contains(b) && !b.contains(a)) found.push(`"${a.textContent.slice(0, 40)}" and "${b.textContent.slice(0, 40)}"`);
  }));
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page scrolls sideways");
  return found;
})()"""


def check_quiet(browsers):
    """no page has an error on its console, asks the network for anything, or lets anything overlap, at any width"""
    for size, browser in browsers.items():
        for page in PAGES:
            page_of(browser, page)
            assert browser.requests == [browser.url], f"{page} asked for {browser.requests}"
            browser.picture(folder / f"{page}-{size}.png")
            overlaps = browser.evaluate(OVERLAPS)
            assert not overlaps, f"{page} at {size}: {overlaps[:5]}"
            assert not browser.messages, f"{page}: {browser.messages}"


def check_svg(browsers):
    """a picture by itself has its style, in light and in dark, and nothing in it overlaps or is cut off"""
    for size, paper in (("1280", "rgb(255, 255, 255)"), ("dark", "rgb(22, 24, 29)")):
        browser = browsers[size]
        for page in PAGES:
            browser.open(folder / f"{page}.svg")
            browser.picture(folder / f"{page}-svg-{size}.png")
            style = browser.evaluate("getComputedStyle(document.querySelector('rect[fill=\"var(--paper)\"]')).fill")
            assert style == paper, f"{page}: paper is {style}"
            overlaps = browser.evaluate(OVERLAPS.replace("figure svg.picture", "svg.file"))
            assert not overlaps, f"{page}: {overlaps[:5]}"
            outside = browser.evaluate("""(() => { const frame = document.documentElement.getBoundingClientRect();
                return [...document.querySelectorAll('text')].filter(t => { const box = t.getBoundingClientRect();
                    return box.left < frame.left || box.right > frame.right + 1 || box.bottom > frame.bottom; }).map(t => t.textContent); })()""")
            assert not outside, f"{page}: {outside} are cut off"
            assert not browser.messages and browser.requests == [browser.url]


def check_print(browsers):
    """in print all tables are open, nothing overlaps, and what only a screen can do is left out"""
    browser = browsers["1280"]
    browser.resize(700, 900)
    browser.call("Emulation.setEmulatedMedia", media="print")
    try:
        for page in PAGES:
            page_of(browser, page)
            browser.picture(folder / f"{page}-print.png")
            overlaps = browser.evaluate(OVERLAPS)
            assert not overlaps, f"{page}: {overlaps[:5]}"
            hidden = browser.evaluate("[...document.querySelectorAll('table')].filter(t => !t.rows[0].getBoundingClientRect().height).length")
            assert hidden == 0, f"{page}: {hidden} tables are hidden"
            assert browser.evaluate("[...document.querySelectorAll('.tools')].filter(t => t.getClientRects().length).length") == 0
            browser.print(folder / f"{page}.pdf")
            assert (folder / f"{page}.pdf").stat().st_size > 20000
    finally:
        browser.resize(1280, 900)
        browser.call("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": "light"}])


def check_peak(browsers):
    """the peak on a page is the database's: in the headline, in the picture, and in the text beside it at first"""
    for page in ("one", "pipeline", "many"):
        browser = page_of(browsers["1280"], page)
        peak, = database(page).execute("SELECT MAX(live_bytes) FROM memory_events").fetchone()
        ledger, = database(page).execute("SELECT MAX(peak_bytes) FROM ranks").fetchone()
        assert peak == ledger
        said = browser.evaluate("""[...document.querySelectorAll('.headlines .peak, .wide g.peak')].map(e => +e.dataset.bytes)
            .concat(+document.getElementById('memory-readout').dataset.bytes)""")
        assert said == [peak] * 3, f"{page}: {said}, not {peak}"


def check_header(browsers):
    """the bar on top has a piece for each role, as wide as its share of the capacity or, where that is far above, of the peak"""
    for page, whole in (("one", 3 << 20), ("pipeline", None), ("ranks", None)):
        browser = page_of(browsers["1280"], page)
        rank, peak = database(page).execute("SELECT rank, peak_bytes FROM ranks ORDER BY peak_bytes DESC, rank LIMIT 1").fetchone()
        held = dict(database(page).execute("SELECT role, bytes FROM peak_breakdown WHERE rank = ? AND bytes > 0", (rank,)))
        drawn = browser.evaluate("""[...document.querySelectorAll('.hero rect:not(.idle)')].map(piece =>
            [piece.getAttribute('fill').match(/role-(.*)\\)/)[1], parseFloat(piece.getAttribute('width')) / 100])""")
        assert [role for role, _ in drawn] == list(held), f"{page}: {drawn}, {held}"
        for role, share in drawn:
            assert abs(share - held[role] / (whole or peak)) < 1e-4, f"{page}: {role} is {share}"


def check_stages(browsers):
    """of several ranks there is a column for each, as high as the database says, and a line where it was predicted"""
    for page in ("pipeline", "ranks"):
        browser = page_of(browsers["1280"], page)
        rows = database(page).execute("SELECT peak_bytes FROM ranks ORDER BY rank").fetchall()
        columns = browser.evaluate("""(() => { const columns = new Map();
            for (const piece of document.querySelectorAll('#stages .wide .area')) {
              const x = piece.getAttribute('x');
              columns.set(x, (columns.get(x) || 0) + +piece.getAttribute('height'));
            }
            return [...columns.values()]; })()""")
        highest, scale = max(peak for peak, in rows), max(columns)
        assert len(columns) == len(rows), f"{len(columns)} columns, {len(rows)} ranks"
        for height, (peak,) in zip(columns, rows):
            assert abs(height / scale - peak / highest) < 0.002, f"{page}: {height} of {scale}, {peak} of {highest}"
        assert browser.evaluate("document.querySelectorAll('#stages .wide .foretold').length") == len(rows)
    browser = page_of(browsers["1280"], "stages")
    assert browser.evaluate("document.querySelectorAll('#stages .wide .foretold').length") == 0
    assert browser.evaluate("new Set([...document.querySelectorAll('#stages .wide .area')].map(a => a.getAttribute('x'))).size") == 4


def check_halves(browsers):
    """under zb-h1 both halves of backward show, foretold and recorded"""
    for page in ("stages", "ranks"):
        legend = page_of(browsers["1280"], page).evaluate("[...document.querySelectorAll('#timeline .legend li')].map(e => e.textContent)")
        assert "weights" in legend and "backward" in legend, f"{page}: {legend}"
    assert "weights" not in page_of(browsers["1280"], "pipeline").evaluate("document.querySelector('#timeline .legend').textContent")


def check_first_view(browsers):
    """the first view leaves out a silence of more than half of it, and still has the peak and all steps"""
    browser = page_of(browsers["1280"], "one")
    home = browser.evaluate("(() => { const plot = document.querySelector('#memory .wide .plot').dataset; return [+plot.from, +plot.to]; })()")
    times = [at for at, in database("one").execute("SELECT time_ns FROM memory_events WHERE rank = 0 AND time_ns BETWEEN ? AND ? ORDER BY seq", home)]
    gaps = [b - a for a, b in zip([home[0], *times], [*times, home[1]])]
    assert max(gaps) <= 0.6 * (home[1] - home[0]), f"a silence of {max(gaps)} ns in {home}"
    assert browser.evaluate("[...document.querySelectorAll('#memory .wide .steps text')].map(e => e.textContent).pop()") == "step 3"
    assert browser.evaluate("document.querySelector('#memory .wide .peak').style.display") == ""


def plot(browser, figure):
    """Where a figure's plot is in the window: left, top, width, height."""
    return browser.evaluate(f"""(() => {{ const svg = document.querySelector('#{figure} .wide svg'); svg.scrollIntoView({{block: 'center'}});
        const box = svg.querySelector('.plot').getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; }})()""")


def alive(connection, rank, event):
    """Bytes of the tensors alive after an event, by SQL."""
    return dict(connection.execute("SELECT role, SUM(bytes) FROM memory_events WHERE rank = ? AND seq <= ? GROUP BY role HAVING SUM(bytes) > 0",
                                   (rank, event)))


def check_hover(browsers):
    """pointing at a moment tells what was alive then, role by role and tensor by tensor, as the database has it"""
    browser = page_of(browsers["1280"], "pipeline")
    connection = database("pipeline")
    rank = browser.evaluate("JSON.parse(document.getElementById('data').textContent).memory.rank")
    left, top, width, height = plot(browser, "memory")
    seen = set()
    for part in (0.02, 0.31, 0.62, 0.8, 0.97):
        browser.mouse("mouseMoved", left + part * width, top + height / 2)
        point = browser.evaluate("+document.getElementById('memory-readout').dataset.point")
        live, = connection.execute("SELECT live_bytes FROM memory_events WHERE rank = ? AND seq = ?", (rank, point)).fetchone()
        assert browser.evaluate("+document.getElementById('memory-readout').dataset.bytes") == live
        said = browser.evaluate("[...document.querySelectorAll('#memory-readout .who div:first-child li span')].map(e => e.textContent)")
        assert set(said) == set(alive(connection, rank, point)), said
        listed = browser.evaluate("[...document.querySelectorAll('#memory-readout .who div:last-child li')].map(e => e.lastChild.textContent)")
        assert abs(sum(map(bytes_of, listed)) - live) < 0.02 * live, f"{listed} are not {live}"
        assert browser.evaluate("document.querySelectorAll('#memory .wide .cursor line').length") == 1
        seen.add(point)
    assert len(seen) >= 2, f"the same moment everywhere: {seen}"


def bytes_of(text):
    number, unit = text.split()
    return float(number) * 1024 ** ("B", "KiB", "MiB", "GiB").index(unit)


def check_zoom(browsers):
    """dragging zooms to what was dragged over, a step's button to the step, Escape back; the peak stays where it is in time"""
    browser = page_of(browsers["1280"], "pipeline")
    left, top, width, height = plot(browser, "memory")
    ticks = lambda: browser.evaluate("[...document.querySelectorAll('#memory .wide .ticks text')].map(e => e.textContent)")
    settle = lambda: browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
    home = ticks()
    browser.mouse("mouseMoved", left + 0.5 * width, top + 50)
    browser.mouse("mousePressed", left + 0.5 * width, top + 50, buttons=1)
    browser.mouse("mouseMoved", left + 0.6 * width, top + 60, buttons=1)
    assert browser.evaluate("document.querySelectorAll('#memory .brush').length") == 1
    browser.mouse("mouseReleased", left + 0.6 * width, top + 60)
    settle()
    assert ticks() != home and browser.evaluate("document.querySelectorAll('#memory .brush').length") == 0
    browser.evaluate("[...document.querySelectorAll('.tools button')].find(b => b.textContent === 'step 3').click()")
    settle()
    names = browser.evaluate("[...document.querySelectorAll('#memory .wide .steps text')].map(e => e.textContent)")
    assert names == ["step 3"], names
    assert browser.evaluate("document.querySelector('#memory .wide .peak').style.display") == "none"
    browser.evaluate("(() => { const svg = document.querySelector('#memory .wide svg'); svg.focus();"
                     "svg.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true})); })()")
    settle()
    assert ticks() == home, f"{ticks()} and not {home}"
    assert not browser.messages, browser.messages


def check_ticks(browsers):
    """the ticks of an axis have as many digits as their distance calls for, the tick that is as large as that distance too"""
    page = browsers["1280"].evaluate("document.scripts[document.scripts.length - 1].textContent")
    function = re.search(r"function timeText\(.*?\n\}\n", page, re.S).group()
    label = lambda *times: browsers["1280"].evaluate(f"({function})({', '.join(map(str, times))})")
    for step in (1, 2e2, 5e2, 1e3, 2e5, 5e5, 1e6, 5e6, 1e7, 2e8, 5e8, 1e9, 1e10):
        fractions = {len(re.match(r"[0-9]+\.?([0-9]*) ", label(at, step)).group(1)) for at in (step, 2 * step, 7 * step)}
        assert len(fractions) == 1, f"ticks {step} ns apart have {fractions} digits"
    assert label(1e7) == "10.000 ms" and label(1e7, 1e7) == "10 ms" and label(3e8, 5e8) == "0.3 s", label(3e8, 5e8)


def check_same_drawing(browsers):
    """what the script draws for the first view is what the program drew"""
    for page in ("one", "pipeline", "plan"):
        browser = page_of(browsers["1280"], page)
        paths = "[...document.querySelectorAll('#memory .wide .areas path')].filter(p => p.getAttribute('d')).map(p => [p.dataset.role, p.getBBox()]).map(([r, b]) => [r, b.x, b.y, b.width, b.height])"
        before = browser.evaluate(paths)
        browser.evaluate("document.querySelector('#memory .wide svg').dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))")
        browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        after = browser.evaluate(paths)
        assert [row[0] for row in before] == [row[0] for row in after]
        for a, b in zip(before, after):
            assert all(abs(p - q) <= 0.2 for p, q in zip(a[1:], b[1:])), f"{page}: {a} and {b}"


def check_smooth(browsers):
    """zooming and pointing over 100,000 events takes less than 100 ms a picture, where no GPU helps"""
    browser = page_of(browsers["1280"], "many")
    assert browser.evaluate("JSON.parse(document.getElementById('data').textContent).memory.at.length") == 100000
    left, top, width, height = plot(browser, "memory")
    times = browser.evaluate("""(async () => {
      const svg = document.querySelector('#memory .wide svg'), box = svg.getBoundingClientRect(), times = [];
      for (let i = 0; i < 20; i++) {
        const start = performance.now();
        svg.dispatchEvent(new WheelEvent('wheel', {deltaY: i % 10 < 5 ? -200 : 200, ctrlKey: true, clientX: box.left + box.width / 2, clientY: box.top + 50, cancelable: true}));
        svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width * (0.2 + 0.03 * i), clientY: box.top + 50}));
        await new Promise(done => requestAnimationFrame(() => done()));
        times.push(performance.now() - start);
      }
      return times.sort((a, b) => a - b);
    })()""")
    print(f"      a picture of 100,000 events: {times[10]:.0f} ms at the median, {times[-1]:.0f} ms at most")
    assert times[10] < 100, times


def check_sort(browsers):
    """a click on a heading sorts the candidate plans by exact figures, a second one turns them round"""
    browser = page_of(browsers["1280"], "plan")
    column = browser.evaluate("[...document.querySelectorAll('.sortable thead th')].findIndex(th => th.textContent === 'peak')")
    values = lambda: browser.evaluate(f"[...document.querySelectorAll('.sortable tbody tr')].map(row => +row.cells[{column}].dataset.value)")
    click = lambda: browser.evaluate(f"document.querySelectorAll('.sortable thead th')[{column}].querySelector('button').click()")
    before = values()
    assert len(before) > 10 and before != sorted(before)
    click()
    assert values() == sorted(before)
    click()
    assert values() == sorted(before, reverse=True)
    assert browser.evaluate("document.querySelectorAll('[aria-sort]').length") == 1


def check_scatter(browsers):
    """pointing at a dot finds its row, whatever the order of the table; the ring is around the chosen plan"""
    browser = page_of(browsers["1280"], "plan")
    browser.evaluate("document.querySelectorAll('.sortable thead th')[6].querySelector('button').click()")
    x, y = browser.evaluate("""(() => { const dot = document.querySelector('#candidates .wide .ring').parentElement; dot.scrollIntoView({block: 'center'});
        const box = dot.getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]; })()""")
    browser.mouse("mouseMoved", x, y)
    picked = browser.evaluate("[...document.querySelectorAll('tr.picked')].map(row => row.cells[0].textContent)")
    assert picked == ["chosen"], picked
    assert browser.evaluate("document.getElementById('candidates-readout').textContent").startswith("chosen, dp 8")


def check_timeline(browsers):
    """pointing into a lane tells the rank, and the work or that there was none, as the database has it"""
    browser = page_of(browsers["1280"], "pipeline")
    connection = database("pipeline")
    step, start, end = connection.execute("SELECT step, MIN(start_ns), MAX(end_ns) FROM kernels GROUP BY step ORDER BY step DESC").fetchone()
    left, top, width, _ = plot(browser, "timeline")
    tops = [float(y) for y in browser.evaluate("document.querySelector('#timeline .wide .plot').dataset.tops").split()]
    assert len(tops) == 5 and all(b - a > 8 for a, b in zip(tops, tops[1:])), tops
    for rank in range(4):
        for part in (0.1, 0.35, 0.6, 0.85):
            browser.mouse("mouseMoved", left + part * width, top + tops[rank] - tops[0] + 8)
            said = browser.evaluate("document.getElementById('timeline-readout').textContent")
            at = start + part * (end - start)
            slack = (end - start) / width + 20000  # a pixel; and what is between operations
            kinds = {row[0] for row in connection.execute("SELECT phase FROM kernels JOIN operations USING (run_id, rank, operation_id)"
                     " WHERE rank = ? AND step = ? AND start_ns <= ? AND end_ns >= ?", (rank, step, at + slack, at - slack))}
            assert said.startswith(f"rank {rank}, stage {rank // 2}, "), said
            assert "idle" in said or kinds, f"{said}, and the database has nothing there"


def check_timeline_zoom(browsers):
    """dragging over the lanes zooms to finer blocks than the first view has, Escape back to what the program drew"""
    browser = page_of(browsers["1280"], "ranks")
    blocks = "[...document.querySelectorAll('#timeline .wide .lanes path')].map(p => p.getAttribute('d').split('M').length - 1).reduce((a, b) => a + b)"
    lanes = "[...document.querySelectorAll('#timeline .wide .lanes path')].map(p => [p.getAttribute('stroke'), p.getBBox().x, p.getBBox().y, p.getBBox().width].map(v => typeof v === 'number' ? Math.round(v) : v))"
    settle = lambda: browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
    first, many = browser.evaluate(lanes), browser.evaluate(blocks)
    left, top, width, _ = plot(browser, "timeline")
    browser.mouse("mouseMoved", left + 0.4 * width, top + 20)
    browser.mouse("mousePressed", left + 0.4 * width, top + 20, buttons=1)
    browser.mouse("mouseMoved", left + 0.42 * width, top + 30, buttons=1)
    browser.mouse("mouseReleased", left + 0.42 * width, top + 30)
    settle()
    data = browser.evaluate("(() => { const t = JSON.parse(document.getElementById('data').textContent).timeline; return [t.length, t.lanes]; })()")
    seen = 0
    for lane in data[1]:
        at = 0
        for i in range(0, len(lane["work"]), 5):
            at += lane["work"][i]
            seen += at < 0.42 * data[0] and at + lane["work"][i + 1] > 0.4 * data[0]
    shown = browser.evaluate(blocks)
    assert 0.6 * seen <= shown <= 1.2 * seen, f"{shown} blocks of {seen} stretches"
    start, = browser.evaluate("[...document.querySelectorAll('#timeline .wide .ticks text')].map(e => e.textContent)")[:1]
    assert not start.startswith("0"), start
    browser.evaluate("document.querySelector('#timeline .wide svg').dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape', bubbles: true}))")
    settle()
    again = browser.evaluate(lanes)
    assert len(again) == len(first) and abs(browser.evaluate(blocks) - many) <= many // 50, (many, browser.evaluate(blocks))
    for a, b in zip(first, again):
        assert a[0] == b[0] and all(abs(p - q) <= 1 for p, q in zip(a[1:], b[1:])), f"{a} and {b}"
    assert not browser.messages, browser.messages


def check_keys(browsers):
    """arrow keys go from event to event"""
    browser = page_of(browsers["1280"], "one")
    press = lambda key: browser.evaluate(f"document.querySelector('#memory .wide svg').dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))")
    point = lambda: browser.evaluate("+document.getElementById('memory-readout').dataset.point")
    start = point()
    press("ArrowLeft")
    assert point() == start - 1
    press("ArrowRight")
    press("ArrowRight")
    assert point() == start + 1
    press("Home")
    assert point() == start


def check_touch(browsers):
    """on a phone a tap tells what is alive"""
    browser = page_of(browsers["390"], "pipeline")
    before = browser.evaluate("document.getElementById('memory-readout').textContent")
    box = browser.evaluate("""(() => { const svg = document.querySelector('#memory .narrow svg'); svg.scrollIntoView({block: 'center'});
        const box = svg.querySelector('.plot').getBoundingClientRect(), peak = svg.querySelector('.peak circle').getBoundingClientRect();
        return [box.left, box.top, box.width, box.height, peak.left]; })()""")
    # Far from the peak, which the page tells of at first.
    part = 0.1 if box[4] > box[0] + box[2] / 2 else 0.9
    spot = {"x": box[0] + part * box[2], "y": box[1] + box[3] / 2}
    browser.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[spot])
    browser.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    after = browser.evaluate("document.getElementById('memory-readout').textContent")
    assert after != before, "a tap says nothing new"


def main():
    checks = [value for name, value in list(globals().items()) if name.startswith("check_")]
    failed = 0
    browsers = {size: Browser(**options) for size, options in SIZES.items()}
    try:
        for browser in browsers.values():
            browser.__enter__()
        for check in checks:
            try:
                check(browsers)
                print(f"ok    {check.__doc__}")
            except Exception:
                failed += 1
                print(f"FAIL  {check.__doc__}")
                print("      " + traceback.format_exc().strip().splitlines()[-1])
                print("      " + traceback.format_exc().strip().splitlines()[-3].strip())
    finally:
        for browser in browsers.values():
            if hasattr(browser, "process"):
                browser.__exit__()
    print(f"{len(checks) - failed} passed, {failed} failed, 0 skipped")
    sys.exit(failed > 0)


main()
