"use strict";
// Draws the curves of a report's page with uPlot: the JSON of each world (evorl/analysis/curves.py) in its figures.
// In live mode it also asks the server for newer content.
(() => {
  const GRID = 400; // most points of a chart's common horizontal grid
  const FEW = 5; // runs from which on a group has an interval
  const TOLD = 8; // most curves that a hint tells of
  const state = {x: "steps", y: "linear", runs: true, hidden: new Set()};
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const DASHES = [[], [7, 4], [2, 3]];
  const STEPS = uPlot.paths.stepped({align: 1});
  const FROM_ZERO = {min: {pad: 0.05, soft: 0, mode: 1}, max: {pad: 0.05, soft: 0, mode: 1}};
  // What the reader has chosen, by the heading of the world and what it is of: newer content keeps it.
  const zooms = new Map(); // {x: [low, high], y: [low, high]} of charts; x in steps or seconds
  const ranges = new Map(); // of axes of parallel coordinates
  let charts = [];
  let observer = null;

  // ---------------------------------------------------------------- numbers

  const number = (v, digits = 4) => {
    if (v == null) return "–";
    const size = Math.abs(v);
    for (const [scale, sign] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (size >= scale * 10 && size < 1e13) return `${+(v / scale).toPrecision(digits)}${sign}`.replace("-", "−");
    return `${+v.toPrecision(digits)}`.replace("-", "−");
  };
  // Labels of an axis: four digits, or as many as tell them apart.
  function ticks(splits) {
    const known = splits.filter(v => v != null);
    let digits = 4;
    while (digits < 12 && new Set(known.map(v => number(v, digits))).size < new Set(known).size) digits++;
    return splits.map(v => v == null ? "" : number(v, digits));
  }
  const unitOfTime = most => most < 300 ? [1, "seconds"] : most < 3 * 3600 ? [60, "minutes"] : [3600, "hours"];

  // Values of a curve (x ascending) on a grid: linear between its points, or held until the next; null outside of them.
  function onGrid(grid, x, y, held) {
    const found = new Array(grid.length).fill(null);
    for (let i = 0, k = 0; i < grid.length; i++) {
      if (grid[i] < x[0] || grid[i] > x[x.length - 1]) continue;
      while (k < x.length - 2 && x[k + 1] < grid[i]) k++;
      const [a, b] = [y[k], y[Math.min(k + 1, x.length - 1)]];
      const span = x[Math.min(k + 1, x.length - 1)] - x[k];
      if (held) found[i] = span && grid[i] < x[k + 1] ? a : b;
      else found[i] = a == null || b == null ? (grid[i] === x[k] ? a : null) : span ? a + (b - a) * (grid[i] - x[k]) / span : b;
    }
    return found;
  }

  // The union of all x, or evenly spaced points if the union is larger.
  function commonGrid(xs) {
    const union = new Set();
    for (const x of xs) for (const value of x) union.add(value);
    const sorted = Float64Array.from(union).sort();
    if (sorted.length <= GRID) return Array.from(sorted);
    const [low, high] = [sorted[0], sorted[sorted.length - 1]];
    return Array.from({length: GRID}, (_, i) => low + (high - low) * i / (GRID - 1));
  }

  // ---------------------------------------------------------------- a chart

  // The series of a chart on one grid: {label, group, kind: run | low | high | mean | part, y}.
  function seriesOf(world, chart) {
    const shown = rank => !state.hidden.has(world.groups[rank].label);
    const runs = state.runs || !chart.means[state.x].length ? chart.runs : [];
    const means = chart.means[state.x].filter(one => shown(one.group));
    const curves = runs.filter(([run]) => shown(world.runs[run].group)).map(([run, axis, y]) => {
      const x = world.axes[axis][state.x];
      const order = x.map((_, i) => i).sort((a, b) => x[a] - x[b]);
      return {run, x: order.map(i => x[i]), y: order.map(i => y[i])};
    });
    const grid = commonGrid([...curves, ...means].map(one => one.x));
    const series = curves.map(one => ({
      kind: "run", group: world.runs[one.run].group, run: world.runs[one.run], y: onGrid(grid, one.x, one.y, chart.held),
    }));
    for (const one of means) {
      const y = onGrid(grid, one.x, one.y, chart.held);
      const whole = one.whole && onGrid(grid, one.x, one.whole);
      const full = whole ? y.map((v, i) => whole[i] === 1 ? v : null) : y;
      if (one.half) {
        const half = onGrid(grid, one.x, one.half, chart.held);
        const [least, most] = chart.limits;
        const edge = sign => full.map((v, i) =>
          v == null || half[i] == null ? null : Math.min(most, Math.max(least, v + sign * half[i])));
        series.push({kind: "high", group: one.group, y: edge(1)}, {kind: "low", group: one.group, y: edge(-1)});
      }
      if (whole) series.push({kind: "part", group: one.group, y: y.map((v, i) => whole[i] === 1 ? null : v)});
      series.push({kind: "mean", group: one.group, y: full, half: one.half && onGrid(grid, one.x, one.half)});
    }
    return [grid, series];
  }

  // A run of a group without an interval stands for what that would show.
  function lineOf(one, world, held) {
    const colour = css(`--c${one.group % 7}`);
    const dash = DASHES[Math.floor(one.group / 7) % DASHES.length];
    const style = {
      run: world.groups[one.group].n < FEW ? {stroke: colour, width: 1.1, alpha: 0.6} : {stroke: colour, width: 0.8, alpha: 0.35},
      mean: {stroke: colour, width: 2, dash},
      part: {stroke: colour, width: 1.2, dash: [3, 3]},
      low: {stroke: "transparent", width: 0, auto: false},
      high: {stroke: "transparent", width: 0, auto: false},
    }[one.kind];
    const single = one.y.filter(v => v != null).length === 1;
    return {points: {show: single && one.kind !== "low" && one.kind !== "high", size: 6}, spanGaps: false, ...(held ? {paths: STEPS} : {}), ...style};
  }

  function draw(item) {
    item.dirty = false;
    item.plot?.destroy();
    item.plot = null;
    item.place.textContent = "";
    const [grid, series] = seriesOf(item.world, item.chart);
    if (!series.length) return;
    const positive = series.some(one => one.kind !== "low" && one.y.some(v => v > 0));
    const log = state.y === "log" && positive;
    const keep = v => log && !(v > 0) ? null : v;
    const [unit, name] = state.x === "steps" ? [1, ""] : unitOfTime(grid[grid.length - 1]);
    const data = [grid.map(x => x / unit), ...series.map(one => one.y.map(keep))];
    const bands = series.flatMap((one, i) => one.kind !== "high" ? [] :
      [{series: [i + 1, i + 2], fill: `color-mix(in srgb, ${css(`--c${one.group % 7}`)} 16%, transparent)`}]);
    const axis = {stroke: css("--muted"), grid: {stroke: css("--rule"), width: 1}, ticks: {show: false}, font: "11px system-ui"};
    const label = {labelSize: 16, labelGap: 0, labelFont: "11px system-ui"};
    const values = (_, splits) => ticks(splits);
    item.plot = new uPlot({
      width: item.place.clientWidth || 300,
      height: item.place.clientHeight || 200,
      legend: {show: false},
      scales: {x: {time: false}, y: {distr: log ? 3 : 1, ...(item.chart.from_zero && !log ? {range: FROM_ZERO} : {})}},
      series: [{}, ...series.map(one => lineOf(one, item.world, item.chart.held))],
      bands,
      axes: [
        {...axis, grid: {show: false}, size: 26, values, label: name ? `time (${name})` : "environment steps", ...label},
        {...axis, size: 46, values, label: item.chart.quantity, ...label},
      ],
      cursor: {drag: {x: true, y: true, uni: 24}, points: {show: false}},
      hooks: {
        setCursor: [plot => tip(item, plot, series, name)],
        setSelect: [plot => plot.select.width + plot.select.height > 0 && setTimeout(() => keepZoom(item, plot, unit))],
      },
    }, data, item.place);
    item.plot.over.addEventListener("dblclick", () => zooms.delete(item.key));
    const zoom = zooms.get(item.key);
    if (zoom) item.plot.batch(() => {
      item.plot.setScale("x", {min: zoom.x[0] / unit, max: zoom.x[1] / unit});
      item.plot.setScale("y", {min: zoom.y[0], max: zoom.y[1]});
    });
    if (state.y === "log" && !positive) note(item, "no positive values: the axis stays linear");
    item.hint = document.createElement("div");
    item.hint.className = "tip";
    item.hint.hidden = true;
    item.place.append(item.hint);
  }

  // The scales, once uPlot has set them to what was selected.
  function keepZoom(item, plot, unit) {
    const {x, y} = plot.scales;
    zooms.set(item.key, {x: [x.min * unit, x.max * unit], y: [y.min, y.max]});
  }

  function note(item, text) {
    const said = document.createElement("p");
    said.textContent = text;
    item.place.append(said);
  }

  // ---------------------------------------------------------------- hover

  // The curve that is nearest to the cursor, and the means next to it, from top to bottom.
  function tip(item, plot, series, unit) {
    const {idx, left, top} = plot.cursor;
    if (!item.hint) return;
    item.hint.hidden = idx == null || left < 0;
    if (item.hint.hidden) return;
    const away = i => Math.abs(plot.valToPos(plot.data[i + 1][idx], "y") - top);
    const seen = series.map((one, i) => i).filter(i =>
      series[i].kind !== "low" && series[i].kind !== "high" && plot.data[i + 1][idx] != null);
    const near = seen.reduce((best, i) => best < 0 || away(i) < away(best) ? i : best, -1);
    const told = seen.filter(i => i === near || series[i].kind !== "run").sort((a, b) => away(a) - away(b)).slice(0, TOLD);
    told.sort((a, b) => plot.data[b + 1][idx] - plot.data[a + 1][idx]);
    const x = plot.data[0][idx];
    const lines = [`<div>${unit ? `${number(x)} ${unit}` : `${Math.round(x).toLocaleString("en")} steps`}</div>`];
    for (const i of told) {
      const one = series[i];
      const label = one.kind === "run" ? `run ${one.run.name}, seed ${one.run.seed ?? "–"}` : item.world.groups[one.group].label;
      const wide = one.half?.[idx] != null ? ` ± ${number(one.half[idx])}` : "";
      lines.push(`<div${i === near ? " class=near" : ""}><i class="c${one.group % 7}"></i>${plain(label)}: ` +
        `${number(plot.data[i + 1][idx])}${wide}</div>`);
    }
    item.hint.innerHTML = lines.join("");
    const wide = plot.over.clientWidth;
    item.hint.style.top = `${plot.over.offsetTop + 8}px`;
    item.hint.style.left = left < wide / 2 ? `${plot.over.offsetLeft + left + 16}px` : "";
    item.hint.style.right = left < wide / 2 ? "" : `${wide - left + 16}px`;
  }

  const plain = text => text.replace(/[&<>"]/g, sign => `&#${sign.charCodeAt(0)};`);

  // ---------------------------------------------------------------- the page

  function redraw() {
    for (const item of charts) {
      item.dirty = true;
      if (item.visible) draw(item);
    }
  }

  // Tables that are wider than the page say so until they are scrolled to their end.
  function watchTables() {
    for (const wide of document.querySelectorAll(".wide")) {
      const show = () => wide.classList.toggle("more", wide.scrollWidth - wide.clientWidth - wide.scrollLeft > 2);
      wide.onscroll = show;
      show();
    }
  }

  const keyOf = (node, name) => `${node.closest(".world")?.querySelector("h2")?.textContent ?? ""}\n${name}`;

  function drawAllParallel() {
    for (const figure of document.querySelectorAll("figure.parallel")) {
      const key = keyOf(figure, "");
      if (!ranges.has(key)) ranges.set(key, new Map());
      drawParallel(figure, ranges.get(key));
    }
  }

  function start() {
    observer?.disconnect();
    for (const item of charts) item.plot?.destroy();
    charts = [];
    for (const data of document.querySelectorAll("script.curves")) {
      const section = data.closest(".world");
      const world = JSON.parse(data.textContent);
      const by = new Map(world.charts.map(one => [one.metric, one]));
      for (const figure of section.querySelectorAll("figure.chart"))
        charts.push({
          world, chart: by.get(figure.dataset.metric), place: figure.querySelector("div"), dirty: true,
          key: keyOf(figure, figure.dataset.metric),
        });
      for (const button of section.querySelectorAll("button[data-group]")) legend(button, world);
    }
    const of = new Map(charts.map(item => [item.place, item]));
    observer = new IntersectionObserver(entries => {
      for (const entry of entries) {
        const item = of.get(entry.target);
        item.visible = entry.isIntersecting;
        if (item.visible && item.dirty) draw(item);
      }
    }, {rootMargin: "300px"});
    for (const item of charts) observer.observe(item.place);
    for (const one of document.querySelectorAll("details")) one.ontoggle = watchTables;
    watchTables();
    drawAllParallel();
    const form = document.querySelector("form.controls");
    if (!form) return;
    form.hidden = false;
    form.x.value = state.x;
    form.y.value = state.y;
    form.runs.checked = state.runs;
    form.onchange = () => {
      if (form.x.value !== state.x || form.y.value !== state.y) zooms.clear();
      Object.assign(state, {x: form.x.value, y: form.y.value, runs: form.runs.checked});
      redraw();
    };
  }

  function legend(button, world) {
    const label = rank => world.groups[rank].label;
    const all = [...button.closest("ul").querySelectorAll("button")];
    const mark = one => one.setAttribute("aria-pressed", String(!state.hidden.has(one.dataset.label)));
    const show = () => {
      document.querySelectorAll("button[data-label]").forEach(mark); // also of other worlds, with the same groups
      redraw();
    };
    const own = button.dataset.label = label(button.dataset.group);
    mark(button);
    button.onclick = () => {
      if (!state.hidden.delete(own)) state.hidden.add(own);
      show();
    };
    button.ondblclick = () => {
      const others = all.map(one => label(one.dataset.group)).filter(one => one !== own);
      const alone = others.every(one => state.hidden.has(one));
      for (const one of others) alone ? state.hidden.delete(one) : state.hidden.add(one);
      state.hidden.delete(own);
      show();
    };
  }

  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) {
      redraw();
      watchTables();
      drawAllParallel();
    }
    width = innerWidth;
  });
  addEventListener("beforeprint", () => charts.filter(item => item.dirty).forEach(draw));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  // ---------------------------------------------------------------- live

  const folded = () => [...document.querySelectorAll("details")].map(one => [keyOf(one, one.dataset.title), one]);

  // Take in newer content; tables that were unfolded stay so.
  function replace(page) {
    const open = new Set(folded().filter(([, one]) => one.open).map(([key]) => key));
    document.title = page.title;
    document.querySelector("main").replaceWith(document.adoptNode(page.querySelector("main")));
    for (const [key, one] of folded()) one.open = open.has(key);
    start();
  }

  let version = null;
  async function refresh() {
    try {
      const answer = await fetch("version", {cache: "no-store"});
      const newest = answer.ok ? await answer.text() : version;
      if (version !== null && newest !== version) {
        const text = await (await fetch("", {cache: "no-store"})).text();
        replace(new DOMParser().parseFromString(text, "text/html"));
      }
      version = newest;
      document.body.classList.remove("lost");
    } catch {
      document.body.classList.add("lost"); // the server has ended: what is shown stays
    }
    setTimeout(refresh, 2000);
  }

  start();
  if (document.body.hasAttribute("data-live")) refresh();
})();
