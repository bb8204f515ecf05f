/* What the pages do by themselves. Everything works without it, only not by itself. */
(() => {
  "use strict";
  const root = document.documentElement;
  const PREFIX = root.dataset.prefix || ""; /* the path below which another application serves these pages */
  const find = (selector, within = document) => within.querySelector(selector);
  const findAll = (selector, within = document) => [...within.querySelectorAll(selector)];
  root.classList.add("has-js");

  /* Numbers as the server writes them, so that a patched number looks as one that was rendered. */
  const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
  const formatters = {
    count: (n) => whole.format(n),
    ms: (s) => `${(1000 * s).toFixed(s && s < 0.01 ? 2 : 0)} ms`,
    rate: (n) => (n >= 100 ? whole.format(n) : n >= 10 ? n.toFixed(1) : n.toFixed(n ? 2 : 0)),
    size: (n) => {
      for (const unit of ["B", "kB", "MB", "GB"]) {
        if (n < 1000) return unit === "B" || n >= 100 ? `${n.toFixed(0)} ${unit}` : `${n.toFixed(1)} ${unit}`;
        n /= 1000;
      }
      return `${n.toFixed(1)} TB`;
    },
    lasting: (s) => {
      const two = (n) => String(n).padStart(2, "0");
      if (!s) return "0 s";
      if (s < 1) return `${s.toFixed(s >= 0.1 ? 1 : 3)} s`;
      if (s < 59.5) return `${s.toFixed(0)} s`;
      const t = Math.round(s);
      if (t < 3600) return `${Math.floor(t / 60)}:${two(t % 60)}`;
      if (t < 172800) return `${Math.floor(t / 3600)}h${two(Math.floor((t % 3600) / 60))}`;
      return `${Math.floor(t / 86400)} d ${Math.floor((t % 86400) / 3600)} h`;
    },
  };

  /* Text from elsewhere, as the server shows it: what cannot be seen or turns the direction is spelled out. */
  const printable = (text) => {
    const seen = text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}]/gu, (it) => (it === "\u200c" || it === "\u200d" ? it : `‹U+${it.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}›`));
    return seen.length > 60 ? `${seen.slice(0, 59)}…` : seen;
  };

  /* Theme: a cookie, which the server puts into the page before it is drawn. */
  const THEMES = ["system", "light", "dark"];
  const THEME_ICONS = { system: "◐", light: "☀", dark: "☾" };
  function showTheme() {
    const button = find("#theme");
    if (!button) return;
    const now = root.dataset.theme || "system";
    button.textContent = THEME_ICONS[now];
    button.setAttribute("aria-label", `Theme: ${now}. Change it`);
    button.title = `Theme: ${now}`;
  }
  function nextTheme() {
    const now = THEMES[(THEMES.indexOf(root.dataset.theme || "system") + 1) % THEMES.length];
    root.dataset.theme = now;
    document.cookie = `shoal_theme=${now}; path=/; max-age=31536000; samesite=strict`;
    showTheme();
    charts.redraw();
  }

  /* Times: a moment of the server becomes local, and how long ago it was keeps up. */
  function showTimes() {
    for (const element of findAll("time[datetime]")) {
      const at = new Date(element.getAttribute("datetime"));
      if (Number.isNaN(at.getTime())) continue;
      if (!element.title) element.title = at.toLocaleString("sv-SE");
      if (element.dataset.as === "moment") {
        element.textContent = at.toLocaleString("sv-SE");
        continue;
      }
      if (element.dataset.as === "clock") {
        element.textContent = at.toLocaleTimeString("sv-SE", { hour: "2-digit", minute: "2-digit" });
        continue;
      }
      const seconds = (Date.now() - skew - at.getTime()) / 1000;
      const words = Math.abs(seconds) < 2 ? "just now" : seconds > 0 ? `${formatters.lasting(seconds)} ago` : `in ${formatters.lasting(-seconds)}`;
      if (element.textContent !== words) element.textContent = words;
    }
  }
  let skew = 0; // this machine's clock less the server's
  const served = Date.parse(root.dataset.at || "");
  if (served) skew = Date.now() - served;

  /* Live: one stream per tab. Numbers are patched as they come; lists are asked for again, when something
     changed, at most every two seconds and only while somebody can see them. */
  let picked = 0; // when a row was last chosen: while somebody is at it, lists hold still
  const live = (() => {
    const REFRESH_INTERVAL = 2000;
    const MAX_SILENCE = 12000;
    const newest = new Map(); // the last event of each kind
    let changed = ""; // when what is told last became different
    let source = null, since = null, last = 0, retry = 1000, timer = 0, asked = Date.now(), waiting = 0, seen = new Map();
    const sign = () => find("#live");

    function setStatus(state, words) {
      const element = sign();
      if (!element || (element.dataset.state === state && element.textContent === words)) return;
      element.dataset.state = state;
      // Only the first word takes room: what comes and goes in the bar must not move the menu.
      const [short, ...rest] = words.split(" ");
      const more = document.createElement("span");
      more.className = "visually-hidden";
      more.textContent = rest.length ? ` ${rest.join(" ")}` : "";
      element.replaceChildren(short, more);
      element.title = rest.length ? words : "";
    }
    function showLost() {
      if (!since) since = new Date();
      setStatus("lost", `offline since ${since.toLocaleTimeString(undefined, { hour12: false })}, retrying`);
    }
    function open() {
      const topics = (document.body.dataset.topics || "").split(" ").filter(Boolean);
      if (!topics.length || source || document.hidden) return;
      const query = topics.map((topic) => `topic=${encodeURIComponent(topic)}`).join("&");
      source = new EventSource(`${PREFIX}/api/v1/events?${query}`);
      for (const kind of ["fleet", "run", "state", "action", "message"]) source.addEventListener(kind, onEvent);
      source.onopen = () => { last = Date.now(); };
      source.onerror = () => {
        showLost();
        if (source && source.readyState === EventSource.CLOSED) { closeStream(); reconnect(); }
      };
    }
    function reconnect() {
      clearTimeout(timer);
      timer = setTimeout(open, retry);
      retry = Math.min(retry * 2, 15000);
    }
    function closeStream() { if (source) source.close(); source = null; }
    function onEvent(message) {
      let event;
      try { event = JSON.parse(message.data); } catch { return; }
      const wasLost = since !== null;
      last = Date.now(); retry = 1000; since = null;
      setStatus("live", "live");
      const data = event.data ?? event;
      const kind = event.event || message.type;
      newest.set(kind, data);
      patch(kind, data);
      announce(kind, data);
      const { at = event.at, ...rest } = data;
      const text = JSON.stringify(rest);
      const key = kind + (data.name || data.run || "");
      // The first event counts, too: the page may have been a second old when it came.
      if (seen.get(key) !== text || wasLost) {
        seen.set(key, text);
        changed = at || changed;
        refresh();
      }
    }
    /* For those who listen: a summary now and then, not every number that changes. */
    let summaryAt = Date.now();
    function announce(kind, data) {
      const box = find("#live-summary");
      if (!box || Date.now() - summaryAt < 60000) return;
      summaryAt = Date.now();
      const rate = formatters.rate(data.pages_per_second || 0);
      box.textContent = kind === "run" ? `${rate} pages per second, ${formatters.count(data.open)} open, ${formatters.count(data.dead)} failed`
        : kind === "fleet" ? `${rate} pages per second, ${formatters.count(data.unfinished_runs)} unfinished` : box.textContent;
    }
    /* Whether what is shown is a later state than this moment: an event may come after the page that knows more. */
    const before = (at) => Boolean(at) && at < (find("[data-live]")?.dataset.asOf || "");
    function patch(kind, data) {
      if (before(data.at)) return;
      for (const element of findAll(`[data-key^="${kind}:"]`)) {
        let value = data;
        for (const part of element.dataset.key.slice(kind.length + 1).split(".")) value = value?.[part];
        if (typeof value !== "number") continue;
        const words = formatters[element.dataset.as || "count"](value);
        if (element.textContent !== words) element.textContent = words;
      }
    }
    function refresh() {
      if (waiting || document.hidden) return;
      waiting = setTimeout(() => {
        waiting = 0; asked = Date.now();
        const at = document.activeElement;
        const writing = at?.matches("[data-live] input, [data-live] select, [data-live] textarea");
        const left = at?.name === "pick" && Date.now() - picked > 15000; // ticks stay where they are
        if ((writing && !left) || find("dialog[open]")) refresh(); // somebody is at it: later
        else if (!document.hidden && !since) for (const element of findAll("[data-live]")) htmx.trigger(element, "fresh");
      }, Math.max(0, REFRESH_INTERVAL - (Date.now() - asked)));
    }
    /* A part that was asked for again may be older than the events that came meanwhile. */
    function afterSwap() {
      newest.forEach((data, kind) => patch(kind, data));
      const shown = find("[data-live]")?.dataset.asOf;
      if (shown && shown < changed) refresh();
    }
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { closeStream(); setStatus("", "resting"); } else { open(); refresh(); }
    });
    addEventListener("pagehide", closeStream);
    setInterval(() => {
      showTimes();
      if (source && last && Date.now() - last > MAX_SILENCE) { since = since || new Date(last); showLost(); closeStream(); reconnect(); }
      else if (since) showLost();
    }, 1000);
    return { open, refresh, afterSwap };
  })();

  /* Charts: drawn with uPlot from the same figures as the API gives; each can be read as a table, too. */
  const charts = (() => {
    const known = new Map();
    const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
    const DASH = [[], [6, 3], [2, 3], [10, 3, 2, 3], [1, 2], [8, 4], [3, 6], [12, 2]];
    const WHOLE = new Set(["count", "size"]); // of these there is no half: an axis would repeat itself
    const STEPS = [...Array(15).keys()].flatMap((n) => [1, 2, 5].map((step) => step * 10 ** n));
    /* Moments as the axis needs them: with seconds where it shows minutes, with the day where it shows days. */
    function moments(ticks) {
      const span = ticks.length > 1 ? ticks.at(-1) - ticks[0] : 0;
      const parts = { hour: "2-digit", minute: "2-digit", hour12: false, ...(span < 240 ? { second: "2-digit" } : span > 100000 ? { weekday: "short" } : {}) };
      return ticks.map((at) => new Date(at * 1000).toLocaleString(undefined, parts));
    }

    function valueAt(document_, path) {
      return path.split(".").reduce((value, part) => value?.[part], document_);
    }
    function lines(figure, found) {
      const wanted = JSON.parse(figure.dataset.lines);
      const made = [];
      for (const [path, label, tone] of wanted) {
        const values = valueAt(found, path);
        if (Array.isArray(values)) made.push({ label, values, tone });
        else if (values && typeof values === "object") { // one line per name: classes of errors, hosts, workers
          const named = Object.entries(values).filter(([, list]) => Array.isArray(list) && list.some((n) => n > 0));
          named.sort((a, b) => b[1].reduce((s, n) => s + n, 0) - a[1].reduce((s, n) => s + n, 0));
          named.slice(0, 8).forEach(([name, list], at) => made.push({ label: printable(name), values: list, tone: `c${at + 1}` }));
        }
      }
      return made;
    }
    /* A sample speaks of all the time since the one before: what lies between two is as it says. */
    function filled(values) {
      const made = [...values];
      for (let at = made.length - 2; at > 0; at--) {
        if (made[at] == null && made[at + 1] != null && made.slice(Math.max(0, at - 3), at).some((n) => n != null)) made[at] = made[at + 1];
      }
      return made;
    }
    function isolatedPoints(values) {
      return [...values.keys()].filter((at) => values[at] != null && values[at - 1] == null && values[at + 1] == null);
    }
    function stacked(made) {
      const sums = [];
      return made.map(({ values }) => values.map((n, at) => { if (n == null) return n; sums[at] = (sums[at] || 0) + n; return sums[at]; }));
    }
    function blendedColour(name) {
      const parts = (hex) => [1, 3, 5].map((at) => parseInt(hex.length === 4 ? hex[(at + 1) / 2].repeat(2) : hex.slice(at, at + 2), 16));
      const over = parts(colour(name)), under = parts(colour("panel"));
      return `rgb(${over.map((n, at) => Math.round(n * 0.45 + under[at] * 0.55)).join(" ")})`;
    }
    function options(figure, made, width) {
      const stack = figure.dataset.stack === "1";
      const as = formatters[figure.dataset.as || "count"];
      const fine = figure.dataset.as === "rate"; // steps below a hundredth would all read 0.01
      const ink = colour("soft"), grid = colour("line");
      const series = made.map(({ label, tone }, at) => ({
        label, stroke: colour(tone), width: stack ? 1 : 1.75, dash: stack ? [] : DASH[at % DASH.length],
        points: { show: true, size: 5, fill: colour(tone), filter: (plot, n) => isolatedPoints(plot.data[n]) }, // a line needs two
        fill: stack ? blendedColour(tone) : undefined,
      }));
      if (stack) series.reverse(); // the highest first, the others are drawn over it
      const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "11px system-ui" };
      return {
        width, height: 184, series: [{}, ...series], legend: { show: false },
        cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
        scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
        axes: [{ ...axis, space: 64, size: 28, values: (_, ticks) => moments(ticks) }, { ...axis, size: 62, space: 34, ...(WHOLE.has(figure.dataset.as || "count") ? { incrs: STEPS } : {}), values: (_, ticks) => ticks.map((n) => (n == null ? "" : fine && n < 0.1 ? String(Number(n.toPrecision(3))) : as(n))) }],
        hooks: { setCursor: [(plot) => legend(figure, made, plot.cursor.idx)] },
      };
    }
    function legend(figure, made, at) {
      const as = formatters[figure.dataset.as || "count"];
      const box = find(".legend", figure);
      const last = made.length ? made[0].values.length - 1 : 0;
      // The newest point may be one of which nothing is known yet: then the one before speaks.
      const known = [last, last - 1, last - 2].find((n) => made.some(({ values }) => values[n] != null));
      const index = at ?? known ?? last;
      const parts = made.map(({ label, values, tone }, n) => {
        const item = document.createElement("span");
        const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        const mark = document.createElementNS("http://www.w3.org/2000/svg", "line");
        for (const [name, value] of Object.entries({ x1: 0, y1: 4, x2: 18, y2: 4, stroke: colour(tone), "stroke-width": figure.dataset.stack === "1" ? 8 : 3, "stroke-dasharray": figure.dataset.stack === "1" ? "" : DASH[n % DASH.length].join(" ") })) mark.setAttribute(name, value);
        svg.setAttribute("aria-hidden", "true");
        svg.append(mark);
        const number = document.createElement("b");
        number.textContent = values[index] == null ? "–" : as(values[index]);
        item.append(svg, label, number);
        return item;
      });
      box.replaceChildren(...parts);
    }
    function fillTable(figure, at, made) {
      const box = find("details .table", figure);
      if (!box || !find("details", figure).open) return;
      const as = formatters[figure.dataset.as || "count"];
      const table = document.createElement("table");
      const head = table.createTHead().insertRow();
      for (const text of ["at", ...made.map((line) => line.label)]) {
        const cell = document.createElement("th"); cell.scope = "col"; cell.textContent = text; head.append(cell);
      }
      const body = table.createTBody();
      for (let n = at.length - 1; n >= 0 && body.rows.length < 100; n--) {
        const row = body.insertRow();
        row.insertCell().textContent = new Date(at[n] * 1000).toLocaleTimeString(undefined, { hour12: false });
        for (const { values } of made) { const cell = row.insertCell(); cell.className = "n"; cell.textContent = values[n] == null ? "" : as(values[n]); }
      }
      box.replaceChildren(table);
    }
    /* Workers that work for seconds only are gone before anybody asks them for figures. */
    function emptyText(figure, found) {
      const some = [found.dead, found.retries].some((list) => list?.some((n) => n > 0));
      if (figure.dataset.empty && some) return "Some attempts failed at workers that ended before reporting causes: see the dead letters.";
      return figure.dataset.empty || "Nothing yet: data arrives every ten seconds while workers run.";
    }
    function draw(figure) {
      const state = known.get(figure);
      if (!state?.found) return;
      const { found } = state;
      const at = found.times || [];
      const made = lines(figure, found).map((line) => ({ ...line, values: filled(line.values.slice(0, at.length)) }));
      const some = at.length > 1 && made.some(({ values }) => values.some((n) => n != null));
      const box = find(".plot", figure);
      if (state.plot) { state.plot.destroy(); state.plot = null; }
      const empty = find(".empty", figure);
      empty.hidden = some;
      if (!some) { empty.textContent = emptyText(figure, found); find(".legend", figure).replaceChildren(); return; }
      const values = figure.dataset.stack === "1" ? stacked(made).reverse() : made.map((line) => line.values);
      state.plot = new uPlot(options(figure, made, Math.max(200, box.clientWidth - 12)), [at, ...values], box);
      legend(figure, made);
      fillTable(figure, at, made);
      box.setAttribute("role", "img");
      box.setAttribute("aria-label", `${find("h2, h3", figure)?.textContent || "Chart"}: ` + made.map(({ label, values }) => `${label} ${formatters[figure.dataset.as || "count"](values.at(-1) || 0)}`).join(", ") + ". The data is in the table below.");
    }
    async function load() {
      if (document.hidden) return;
      const figures = findAll("figure[data-from]");
      for (const figure of known.keys()) if (!figure.isConnected) { known.get(figure).plot?.destroy(); known.delete(figure); }
      for (const path of new Set(figures.map((figure) => figure.dataset.from))) {
        try {
          const response = await fetch(path, { headers: { Accept: "application/json" } });
          if (!response.ok) continue;
          const found = await response.json();
          for (const figure of figures.filter((it) => it.dataset.from === path)) {
            if (!known.has(figure)) {
              known.set(figure, {});
              find("details", figure)?.addEventListener("toggle", () => draw(figure));
            }
            known.get(figure).found = found;
            draw(figure);
          }
        } catch { /* the sign above says that the server is away */ }
      }
    }
    const redraw = () => { for (const figure of known.keys()) if (figure.isConnected) draw(figure); };
    let later = 0;
    addEventListener("resize", () => { clearTimeout(later); later = setTimeout(redraw, 150); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    setInterval(load, 10000);
    return { load, redraw };
  })();

  /* Confirmation: what will happen, and the same as a command and as a call. */
  function confirmAction(form, submitter) {
    const dialog = find("#confirm");
    const put = (name, text) => {
      const box = find(`[data-part="${name}"]`, dialog);
      box.closest("[data-row]").hidden = !text;
      box.textContent = text || "";
    };
    find("h2", dialog).textContent = form.dataset.title;
    put("words", form.dataset.words);
    const filled = (text) => (text || "").replace(/\{(\w+)\}/g, (all, name) => (name === "server_url" ? location.origin + PREFIX : form.elements[name]?.value ?? all));
    put("cli", filled(form.dataset.cli));
    put("curl", filled(form.dataset.curl));
    const yes = find("[data-confirm]", dialog);
    yes.textContent = submitter?.textContent.trim() || "Confirm";
    yes.classList.toggle("risky", form.dataset.risky === "1");
    yes.classList.toggle("main", form.dataset.risky !== "1");
    dialog.returnValue = "";
    dialog.onclose = () => {
      if (dialog.returnValue !== "yes") { submitter?.focus(); return; }
      let mark = find('input[name="confirmed"]', form);
      if (!mark) { mark = document.createElement("input"); mark.type = "hidden"; mark.name = "confirmed"; mark.value = "1"; form.append(mark); }
      form.dataset.confirmed = "1";
      form.requestSubmit(submitter || undefined);
      delete form.dataset.confirmed;
      mark.remove();
    };
    dialog.showModal();
  }
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.matches("form.action-form[data-title]") && !form.dataset.confirmed) { event.preventDefault(); event.stopImmediatePropagation(); confirmAction(form, event.submitter); }
  }, true);

  /* A flash message stays for ten seconds, unless somebody is at it. */
  function dismissFlash() {
    const box = find("#flash .flash");
    if (!box || box.dataset.seen) return;
    box.dataset.seen = "1";
    const go = () => { if (box.matches(":hover, :focus-within")) setTimeout(go, 2000); else box.remove(); };
    setTimeout(go, box.matches(".error") ? 20000 : 10000);
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.id === "theme") nextTheme();
    else if (button.dataset.copy !== undefined) {
      const text = button.dataset.copy || find("code", button.parentElement)?.textContent || "";
      try { await navigator.clipboard.writeText(text); button.textContent = "copied"; } catch { button.textContent = "select and copy"; }
      setTimeout(() => { button.textContent = "copy"; }, 2000);
    } else if (button.dataset.dialog) find(button.dataset.dialog)?.showModal();
    else if (button.dataset.close !== undefined) button.closest("dialog, .flash")?.tagName === "DIALOG" ? button.closest("dialog").close() : button.closest(".flash").remove();
  });

  /* Keys: one letter, or g and one letter. */
  const SHORTCUTS = { o: "/", r: "/runs", h: "/hosts", w: "/fleet", f: "/dead", a: "/advice", s: "/schedules", e: "/settings", n: "/submit" };
  let goPressedAt = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]") || find("dialog[open]")) return;
    if (Date.now() - goPressedAt < 1500 && SHORTCUTS[event.key]) { event.preventDefault(); goPressedAt = 0; location.assign(PREFIX + SHORTCUTS[event.key]); return; }
    goPressedAt = 0;
    if (event.key === "g") goPressedAt = Date.now();
    else if (event.key === "/") { event.preventDefault(); find("#search")?.focus(); find("#search")?.select(); }
    else if (event.key === "?") { event.preventDefault(); find("#help")?.showModal(); }
    else if (event.key === "t") nextTheme();
  });

  /* Rows that are chosen: how many there are, and all of a page at once. */
  function showPicked() {
    const boxes = findAll('input[name="pick"]');
    const n = boxes.filter((box) => box.checked).length;
    for (const place of findAll("[data-picked]")) place.textContent = n ? `${n} selected` : "";
    for (const button of findAll("[data-picks]")) button.textContent = n && n === boxes.length ? "Select none" : "Select all on this page";
    for (const button of findAll("form.picked button[type=submit]")) button.disabled = !n && button.form.elements.reach?.value !== "all";
  }
  document.addEventListener("change", (event) => { if (["pick", "reach"].includes(event.target.name)) { picked = Date.now(); showPicked(); } });
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-picks]")) return;
    const boxes = findAll('input[name="pick"]');
    const wanted = boxes.some((box) => !box.checked);
    for (const box of boxes) box.checked = wanted;
    showPicked();
  });
  /* Enter means the button beside the field, not the first of the form. */
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !event.target.matches?.("form.bulk-actions input")) return;
    event.preventDefault();
    const button = find("button[type=submit]", event.target.closest(".actions"));
    if (button && !button.disabled) button.form.requestSubmit(button);
  });
  document.addEventListener("htmx:after:settle", showPicked);
  addEventListener("pageshow", showPicked); // a browser may bring ticks back

  function settle() { showTimes(); showTheme(); dismissFlash(); }
  document.addEventListener("htmx:after:settle", settle);
  document.addEventListener("htmx:after:swap", () => { settle(); live.afterSwap(); if (findAll("figure[data-from]").some((f) => !find(".uplot", f))) charts.load(); });
  document.addEventListener("htmx:config:request", (event) => {
    const token = find('meta[name="csrf"]')?.content;
    if (token) event.detail.ctx.request.headers["X-Shoal-CSRF"] = token;
  });
  /* Where tabs do not fit, the one that is open is seen. */
  for (const tab of findAll("nav [aria-current=page]")) {
    const row = tab.closest("ul");
    if (row) row.scrollLeft = Math.max(0, tab.getBoundingClientRect().right - row.getBoundingClientRect().right + 24);
  }
  settle();
  live.open();
  charts.load();
})();
