"use strict";
// Draws the parallel coordinates of a sweep from its JSON (evorl/analysis/sweep_figure.py). A drag along an axis chooses
// a range: groups outside of it fade. `ranges` holds those that are chosen, as shares of the axis, by its name and ticks:
// an axis with other ticks has no range.
function drawParallel(figure, ranges) {
  const {axes, lines, best} = JSON.parse(figure.querySelector("script.sweep").textContent);
  const place = figure.querySelector("div");
  const [width, height, top, bottom, right] = [place.clientWidth || 800, place.clientHeight || 320, 70, 36, 60];
  const left = Math.max(70, 12 + 8 * Math.max(...axes[0].ticks.map(([text]) => text.length)));  // room for its numbers
  const x = k => left + k * (width - left - right) / (axes.length - 1);
  const y = share => top + (1 - share) * (height - top - bottom);
  const key = axis => JSON.stringify([axis.name, axis.ticks]);
  const element = (name, of, facts, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(facts)) made.setAttribute(key, value);
    made.textContent = text;
    of.append(made);
    return made;
  };
  place.textContent = "";
  const svg = element("svg", place, {viewBox: `0 0 ${width} ${height}`});

  const paths = [...lines].sort((a, b) => Math.abs(b.fitness - best) - Math.abs(a.fitness - best)).map(line => {
    const points = line.at.map((share, k) => [x(k), y(share)]);
    const bends = points.slice(1).map(([px, py], k) => {
      const middle = (points[k][0] + px) / 2;
      return `C${middle} ${points[k][1]} ${middle} ${py} ${px} ${py}`;
    });
    const path = element("path", svg, {d: `M${points[0].join(" ")}${bends.join("")}`, stroke: line.shade});
    if (line.fitness === best) path.classList.add("best");
    element("title", path, {}, `${line.label}: ${+line.fitness.toPrecision(4)}`);
    return [path, line];
  });

  const choose = () => {
    const kept = line => axes.every((axis, k) => {
      const [low, high] = ranges.get(key(axis)) ?? [-Infinity, Infinity];
      return line.at[k] >= low && line.at[k] <= high;
    });
    for (const [path, line] of paths) path.classList.toggle("off", !kept(line));
  };
  axes.forEach((axis, k) => {
    element("line", svg, {class: "axis", x1: x(k), x2: x(k), y1: top - 32, y2: height - bottom + 32});
    const name = element("text", svg, {class: "name", x: x(k), y: k % 2 ? 12 : 30, "text-anchor": "middle"}, axis.name);
    const half = name.getComputedTextLength() / 2;
    name.setAttribute("x", Math.max(half, Math.min(x(k), width - half)));  // a long name stays within the picture
    const last = k === axes.length - 1;
    for (const [text, share] of axis.ticks)
      element("text", svg, {x: x(k) + (last ? 6 : -6), y: y(share) + 4, "text-anchor": last ? "start" : "end"}, text);
    const shown = element("rect", svg, {class: "range", x: x(k) - 7, width: 14});
    const show = ([low, high]) => {
      shown.setAttribute("y", y(high));
      shown.setAttribute("height", y(low) - y(high));
    };
    show(ranges.get(key(axis)) ?? [0, 0]);
    const grip = element("rect", svg, {class: "grip", x: x(k) - 12, width: 24, y: top - 32, height: height - top - bottom + 64});
    let from = null;
    const at = event => 1 - ((event.clientY - svg.getBoundingClientRect().top) * height / svg.clientHeight - top) /
      (height - top - bottom);
    grip.onpointerdown = event => {
      from = at(event);
      ranges.delete(key(axis));
      show([0, 0]);
      choose();
      grip.setPointerCapture(event.pointerId);
    };
    grip.onpointermove = event => {
      if (from === null) return;
      const range = [Math.min(from, at(event)), Math.max(from, at(event))];
      ranges.set(key(axis), range);
      show(range);
      choose();
    };
    grip.onpointerup = () => from = null;
  });
  choose();
}
