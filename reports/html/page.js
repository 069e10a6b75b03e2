// Pointing, zooming and sorting. Everything here works on the JSON in #data (reports/html_data.c) and on pictures that are
// already drawn; without this script the page says the same.
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const svgName = "http://www.w3.org/2000/svg";
const word = number => data.words[number];

function element(name, attributes, ...children) {
  const made = attributes && attributes.svg ? document.createElementNS(svgName, name) : document.createElement(name);
  for (const key in attributes)
    if (key !== "svg") made.setAttribute(key, attributes[key]);
  made.append(...children.filter(child => child !== null));
  return made;
}

function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (Math.abs(bytes) >= 1024 && unit < 5) { bytes /= 1024; unit++; }
  return (unit ? bytes.toFixed(2) : bytes) + " " + units[unit];
}

// A time by itself has three digits; a tick on an axis only as many as the distance between ticks, `step`, calls for.
function timeText(ns, step) {
  const scale = step ?? ns, units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const [size, name] = units.find(([size]) => scale >= size * 0.5) || units[3];
  const digits = Math.max(0, Math.min(6, -Math.floor(Math.log10(Math.max(scale, 1e-9) / size) + 1e-9)));
  return (ns / size).toFixed(step === undefined ? 3 : digits) + " " + name;
}

function swatch(scale, name) {
  return element("svg", {svg: 1, class: "swatch", "aria-hidden": "true"},
    element("rect", {svg: 1, width: 14, height: 14, fill: `url(#${scale}-${name})`}));
}

// Where a pointer is, in the units of the picture.
function pointAt(svg, event) {
  const box = svg.getBoundingClientRect(), view = svg.viewBox.baseVal;
  return {x: (event.clientX - box.left) * view.width / box.width, y: (event.clientY - box.top) * view.height / box.height};
}

// What a picture can do, behind what it shows.
function addTip(figure, text) {
  figure.parentElement.querySelector(".note").append(element("span", {class: "tip"}, " " + text));
}

// ------------------------------------------------------------------------------------------------------ memory over time

function undo(differences) {
  let value = 0;
  return Float64Array.from(differences, difference => value += difference);
}

// Columns of numbers: at, event, operation, one for each role, and `total`, their sum.
function readMemory(raw) {
  const memory = {...raw, at: undo(raw.at), event: undo(raw.event), operation: undo(raw.operation), order: raw.roles.order};
  memory.columns = memory.order.map(role => undo(raw.roles[role]));
  memory.total = memory.at.map((_, i) => memory.columns.reduce((sum, column) => sum + column[i], 0));
  const count = raw.lives.length / 4;
  memory.life = {tensor: new Int32Array(count), bytes: new Float64Array(count), born: new Float64Array(count), died: new Float64Array(count)};
  for (let i = 0, born = 0; i < count; i++) {
    const [tensor, bytes, later, lived] = raw.lives.slice(4 * i, 4 * i + 4);
    born += later;
    memory.life.tensor[i] = tensor;
    memory.life.bytes[i] = bytes;
    memory.life.born[i] = born;
    memory.life.died[i] = lived < 0 ? Infinity : born + lived;
  }
  return memory;
}

// The last point at or before a place on the axis.
function findPoint(memory, at) {
  let low = 0, high = memory.at.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (memory.at[middle] <= at) low = middle; else high = middle - 1;
  }
  return low;
}

// What is alive after an event: the same tensor of several layers and micro-batches is one entry. The largest first.
function aliveAt(memory, event) {
  const groups = new Map(), life = memory.life;
  for (let i = 0; i < life.tensor.length && life.born[i] <= event; i++) {
    if (life.died[i] <= event) continue;
    const [name, role, layer, micro] = memory.tensors.slice(4 * life.tensor[i], 4 * life.tensor[i] + 4);
    const key = role + " " + name;
    const group = groups.get(key) || {name: word(name), role, bytes: 0, count: 0, layers: new Set()};
    group.bytes += life.bytes[i];
    group.count++;
    if (layer >= 0) group.layers.add(layer);
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.bytes - a.bytes);
}

function rangesText(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b), parts = [];
  for (let i = 0; i < sorted.length; ) {
    let end = i;
    while (end + 1 < sorted.length && sorted[end + 1] === sorted[end] + 1) end++;
    parts.push(end > i ? `${sorted[i]}–${sorted[end]}` : `${sorted[i]}`);
    i = end + 1;
  }
  return parts.length > 4 ? parts.slice(0, 4).join(", ") + ", …" : parts.join(", ");
}

function operationText(memory, point) {
  const index = memory.operation[point];
  if (index < 0) return "outside all operations";
  const [kind, phase, part, micro] = memory.operations.slice(4 * index, 4 * index + 4);
  return word(phase) + (word(part) ? ", " + word(part) : "") + ": " + word(kind) + (micro >= 0 ? ", micro-batch " + micro : "");
}

function stepAt(memory, at) {
  let found = 0;
  for (let i = 0; i < memory.steps.length; i += 3)
    if (memory.steps[i + 1] <= at) found = memory.steps[i];
  return found;
}

function whenText(memory, point) {
  const at = memory.at[point], step = stepAt(memory, at);
  const where = memory.axis === "ns" ? timeText(at) + (step === 0 ? ", before the first step" : ", step " + step) : "operation " + at;
  return `${where} · ${operationText(memory, point)}`;
}

function showMoment(memory, point) {
  const roles = memory.order.map((role, i) => ({role, bytes: memory.columns[i][point]})).filter(entry => entry.bytes)
    .sort((a, b) => b.bytes - a.bytes);
  const alive = aliveAt(memory, memory.event[point]), most = 8;
  const rest = memory.total[point] - alive.slice(0, most).reduce((sum, group) => sum + group.bytes, 0);
  const line = (role, text, bytes) => element("li", null, role === null ? null : swatch("role", role), element("span", null, text), bytesText(bytes));
  const named = group => group.name + (group.layers.size ? `, layer${group.layers.size > 1 ? "s" : ""} ${rangesText(group.layers)}` : "") +
    (group.count > 1 ? ` (${group.count})` : "");
  const readout = document.getElementById("memory-readout");
  readout.dataset.point = point;
  readout.dataset.bytes = memory.total[point];
  readout.replaceChildren(
    element("p", {class: "when"}, element("b", null, bytesText(memory.total[point])), (point === memory.peak ? ", the peak · " : " · ") + whenText(memory, point)),
    element("div", {class: "who"},
      element("div", null, element("h3", null, "By role"), element("ul", null, ...roles.map(entry => line(entry.role, entry.role, entry.bytes)))),
      element("div", null, element("h3", null, "Largest tensors alive"), element("ul", null,
        ...alive.slice(0, most).map(group => line(memory.order[group.role], named(group), group.bytes)),
        rest > 0 ? line(null, alive.length > most ? `and ${alive.length - most} more` : "and smaller ones", rest) : null))));
}

// Marks along the foot of a picture's view, no closer than `least`, each a line from `from` on.
function drawTicks(picture, look, from, print, least = 0) {
  const ticks = picture.svg.querySelector(".ticks"), {left, width, view} = picture, foot = picture.top + picture.height;
  const rough = (view[1] - view[0]) / (width < 500 ? 4 : 9), unit = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(least, [1, 2, 5, 10].map(n => n * unit).find(n => n >= rough));
  ticks.replaceChildren();
  for (let at = Math.ceil(view[0] / step) * step; at <= view[1]; at += step) {
    const x = picture.x(at);
    ticks.append(element("line", {svg: 1, class: look, x1: x, x2: x, y1: from, y2: foot + 5}),
      element("text", {svg: 1, class: "soft", x, y: foot + 19, "text-anchor": x > left + width - 24 ? "end" : "middle"}, print(at, step)));
  }
}

// One picture of the memory: what part of time it shows, and how to draw it anew. The drawing follows reports/draw_memory.c.
class MemoryPicture {
  constructor(svg, memory) {
    const plot = svg.querySelector(".plot");
    const number = name => +plot.getAttribute(name);
    this.svg = svg;
    this.memory = memory;
    this.left = number("x");
    this.width = number("width");
    this.top = number("y");
    this.height = number("height");
    this.highest = number("data-top");
    this.home = [number("data-from"), number("data-to")];
    this.view = this.home;
    this.areas = svg.querySelector(".areas");
    this.cursor = svg.querySelector(".cursor");
    this.levels = []; // of the area that is being drawn
  }
  x(at) { return this.left + (at - this.view[0]) / (this.view[1] - this.view[0]) * this.width; }
  y(bytes) { return this.top + this.height * (1 - bytes / this.highest); }
  at(x) { return this.view[0] + (x - this.left) / this.width * (this.view[1] - this.view[0]); }

  // Of each column of pixels the lowest and the highest moment, and the last one before the view.
  choosePoints() {
    const {at, total} = this.memory, chosen = [];
    const keep = i => { if (chosen[chosen.length - 1] !== i) chosen.push(i); };
    const close = () => { if (low >= 0) { keep(Math.min(low, high)); keep(Math.max(low, high)); } };
    let low = -1, high = -1, column = -1;
    for (let i = findPoint(this.memory, this.view[0]); i < at.length && at[i] <= this.view[1]; i++) {
      const here = at[i] < this.view[0] ? -2 : Math.floor(this.x(at[i]));
      if (here !== column) { close(); low = high = i; column = here; }
      if (total[i] < total[low]) low = i;
      if (total[i] > total[high]) high = i;
    }
    close();
    return chosen;
  }

  drawAreas() {
    const points = this.choosePoints(), count = points.length, tenth = value => Math.round(value * 10) / 10;
    const xs = points.map(i => tenth(this.x(Math.max(this.memory.at[i], this.view[0]))));
    const below = new Float64Array(count), feet = new Float64Array(count).fill(tenth(this.y(0)));
    const right = tenth(this.left + this.width);
    const paths = new Map([...this.areas.children].map(path => [path.dataset.role, path]));
    this.memory.order.forEach((role, r) => {
      const column = this.memory.columns[r], any = points.some(i => column[i]);
      let path = paths.get(role);
      if (!path && any)
        path = this.areas.appendChild(element("path", {svg: 1, class: "area", "data-role": role, fill: `url(#role-${role})`}));
      if (!path) return;
      const up = [], back = [];
      for (let k = 0; k < count; k++) {
        below[k] += column[points[k]];
        const top = tenth(this.y(below[k]));
        // What stays level needs no corner.
        if (k === 0) up.push("M" + xs[k] + " " + top);
        else if (top !== this.levels[k - 1]) up.push("H" + xs[k] + "V" + top);
        this.levels[k] = top;
      }
      for (let k = count - 1; k >= 0; k--) {
        if (k === count - 1 || feet[k] !== feet[k + 1]) back.push("V" + feet[k]);
        if (k === 0 || feet[k - 1] !== feet[k]) back.push("H" + xs[k]);
      }
      for (let k = 0; k < count; k++) feet[k] = this.levels[k];
      path.setAttribute("d", any ? `${up.join("")}H${right}${back.join("")}Z` : "");
    });
  }

  drawSteps() {
    const group = this.svg.querySelector(".steps"), steps = this.memory.steps, end = this.left + this.width;
    let free = this.left;
    group.replaceChildren();
    for (let i = 0; i < steps.length && this.memory.axis === "ns"; i += 3) {
      const begins = this.x(steps[i + 1]) >= this.left - 0.5, x = Math.max(this.left, this.x(steps[i + 1]));
      if (steps[i] === 0 || x > end || (!begins && steps[i + 2] <= this.view[0])) continue;
      const named = x >= free && x < end - 44;
      if (begins)
        group.append(element("line", {svg: 1, class: "step", x1: x, x2: x, y1: this.top - (named ? 8 : 0), y2: this.top + this.height}));
      if (named) {
        group.append(element("text", {svg: 1, class: "soft small", x: x + 4, y: this.top - 1}, "step " + steps[i]));
        free = x + 60;
      }
    }
  }

  drawPeak() {
    const peak = this.svg.querySelector(".peak"), at = this.memory.at[this.memory.peak];
    const shift = this.x(at) - +peak.querySelector("circle").getAttribute("cx");
    peak.setAttribute("transform", `translate(${shift.toFixed(1)} 0)`);
    peak.style.display = at < this.view[0] || at > this.view[1] ? "none" : "";
  }

  draw() {
    this.drawAreas();
    drawTicks(this, "axis", this.top + this.height, this.memory.axis === "ns" ? timeText : at => at.toLocaleString("en"), this.memory.axis === "ns" ? 0 : 1);
    this.drawSteps();
    this.drawPeak();
    this.cursor.replaceChildren();
  }

  // No closer than a few points, no farther than all there is.
  zoom(from, to) {
    const first = this.memory.at[0], last = this.memory.at[this.memory.at.length - 1] || 1;
    const least = this.memory.axis === "ns" ? 1000 : 4;
    const span = Math.min(Math.max(to - from, least), Math.max(last - first, least));
    const middle = (from + to) / 2;
    from = Math.max(first, Math.min(middle - span / 2, last - span));
    this.view = [from, from + span];
    if (!this.pending)
      this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }
  zoomBy(factor, x = this.left + this.width / 2) {
    const at = this.at(x);
    this.zoom(at - (at - this.view[0]) / factor, at + (this.view[1] - at) / factor);
  }
  moveBy(part) {
    const by = (this.view[1] - this.view[0]) * part;
    this.zoom(this.view[0] + by, this.view[1] + by);
  }

  point(index) {
    // What began before the view and lasts into it is pointed at where the view begins.
    const lasts = index === findPoint(this.memory, this.view[0]), y = this.y(this.memory.total[index]);
    const x = lasts ? Math.max(this.left, this.x(this.memory.at[index])) : this.x(this.memory.at[index]);
    this.cursor.replaceChildren();
    if (x >= this.left - 0.5 && x <= this.left + this.width + 0.5)
      this.cursor.append(element("line", {svg: 1, class: "cursor-line", x1: x, x2: x, y1: this.top, y2: this.top + this.height}),
        element("circle", {svg: 1, class: "mark", cx: x, cy: y, r: 3.5}));
    showMoment(this.memory, index);
  }
  pointAt({x}) {
    const clipped = Math.max(this.left, Math.min(x, this.left + this.width)), near = 3;
    const from = findPoint(this.memory, this.at(clipped - near)), to = findPoint(this.memory, this.at(clipped + near));
    let best = findPoint(this.memory, this.at(clipped));
    // A peak narrower than a pointer can still be hit.
    if (from <= this.memory.peak && this.memory.peak <= to) best = this.memory.peak;
    this.point(best);
  }
}

function listenToPointers(picture) {
  const pointers = new Map();
  let start = null, brush = null, pinch = null;
  const svg = picture.svg;
  const inside = x => x >= picture.left - 6 && x <= picture.left + picture.width + 6;
  const spread = () => { const [a, b] = [...pointers.values()]; return {middle: (a + b) / 2, width: Math.max(8, Math.abs(a - b))}; };
  svg.addEventListener("pointerdown", event => {
    const spot = pointAt(svg, event), {x} = spot;
    if (!inside(x) || event.button) return;
    pointers.set(event.pointerId, x);
    svg.setPointerCapture(event.pointerId);
    pinch = pointers.size === 2 ? spread() : null;
    start = pointers.size === 1 ? x : null;
    picture.pointAt(spot);
  });
  svg.addEventListener("pointermove", event => {
    const spot = pointAt(svg, event), {x} = spot;
    if (pointers.has(event.pointerId)) pointers.set(event.pointerId, x);
    if (pinch && pointers.size === 2) {
      const now = spread();
      picture.zoomBy(now.width / pinch.width, pinch.middle);
      pinch = now;
      return;
    }
    if (start !== null && event.pointerType === "mouse" && Math.abs(x - start) > 4) {
      brush = brush || svg.appendChild(element("rect", {svg: 1, class: "brush", y: picture.top, height: picture.height}));
      brush.setAttribute("x", Math.max(picture.left, Math.min(x, start)));
      brush.setAttribute("width", Math.abs(x - start));
    }
    if (inside(x)) picture.pointAt(spot);
  });
  const finish = event => {
    const {x} = pointAt(svg, event);
    pointers.delete(event.pointerId);
    pinch = null;
    if (brush && event.type === "pointerup")
      picture.zoom(picture.at(Math.max(picture.left, Math.min(x, start))), picture.at(Math.min(picture.left + picture.width, Math.max(x, start))));
    if (brush) brush.remove();
    start = brush = null;
  };
  svg.addEventListener("pointerup", finish);
  svg.addEventListener("pointercancel", finish);
  svg.addEventListener("dblclick", () => picture.zoom(...picture.home));
  // A plain wheel scrolls the page, as everywhere.
  svg.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    picture.zoomBy(Math.exp(-event.deltaY / 300), pointAt(svg, event).x);
  }, {passive: false});
}

function listenToKeys(picture, keys) {
  picture.svg.tabIndex = 0;
  picture.svg.addEventListener("keydown", event => {
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
}

function memoryKeys(picture) {
  const memory = picture.memory, now = () => +(document.getElementById("memory-readout").dataset.point || memory.peak);
  return {
    ArrowLeft: () => picture.point(Math.max(0, now() - 1)),
    ArrowRight: () => picture.point(Math.min(memory.at.length - 1, now() + 1)),
    "+": () => picture.zoomBy(2, picture.x(memory.at[now()])),
    "-": () => picture.zoomBy(0.5, picture.x(memory.at[now()])),
    Home: () => picture.point(memory.peak),
    Escape: () => picture.zoom(...picture.home),
  };
}

// Buttons above a figure that act on both of its pictures: zooming and moving, then its own [label, name, action].
function addTools(figure, pictures, own) {
  const tools = element("div", {class: "tools"}), common = [
    ["+", "zoom in", picture => picture.zoomBy(2)],
    ["−", "zoom out", picture => picture.zoomBy(0.5)],
    ["←", "earlier", picture => picture.moveBy(-0.5)],
    ["→", "later", picture => picture.moveBy(0.5)]];
  for (const [label, name, action] of [...common, ...own]) {
    const made = element("button", {type: "button", "aria-label": name, title: name}, label);
    made.addEventListener("click", () => pictures.forEach(action));
    tools.append(made);
  }
  figure.insertBefore(tools, figure.querySelector(".wide"));
}

function memoryTools(memory) {
  const tools = [
    ["peak", "zoom to the peak", picture => {
      const at = memory.at[memory.peak], half = (picture.home[1] - picture.home[0]) / 40;
      picture.zoom(at - half, at + half);
      picture.pointAt({x: picture.x(at)});
    }],
    ["all", "show everything recorded", picture => picture.zoom(memory.at[0], memory.at[memory.at.length - 1])]];
  for (let i = 0; memory.axis === "ns" && i < memory.steps.length && i < 9 * 3; i += 3)
    if (memory.steps[i] > 0)
      tools.push(["step " + memory.steps[i], "zoom to step " + memory.steps[i], picture => picture.zoom(memory.steps[i + 1], memory.steps[i + 2])]);
  return tools;
}

function startMemory() {
  const figure = document.getElementById("memory");
  if (!figure || !data.memory) return;
  const memory = readMemory(data.memory);
  const pictures = [...figure.querySelectorAll("svg.memory")].map(svg => new MemoryPicture(svg, memory));
  addTip(figure, "Point at a moment to see what is alive; drag across to zoom; double-click to see it all.");
  pictures.forEach(listenToPointers);
  pictures.forEach(picture => listenToKeys(picture, memoryKeys(picture)));
  addTools(figure, pictures, memoryTools(memory));
  showMoment(memory, memory.peak);
}

// ---------------------------------------------------------------------------------------------------------------- timeline

// Columns of numbers, in order of start.
function readLane(raw) {
  const count = raw.work.length / 5, lane = {...raw, start: new Float64Array(count), length: new Float64Array(count), activity: [], micro: [], operations: []};
  for (let i = 0, start = 0; i < count; i++) {
    lane.start[i] = start += raw.work[5 * i];
    [lane.length[i], lane.activity[i], lane.micro[i], lane.operations[i]] = raw.work.slice(5 * i + 1, 5 * i + 5);
  }
  return lane;
}

// The last stretch that began at or before a time and lasts until then; -1: none.
function workAt(lane, at) {
  let found = -1;
  for (let i = 0; i < lane.start.length && lane.start[i] <= at; i++)
    if (lane.start[i] + lane.length[i] >= at) found = i;
  return found;
}

// One picture of the lanes: what part of the step it shows, and how to draw it anew. The drawing follows
// reports/draw_timeline.c: of all work in half a pixel, that which fills most of it.
class TimelinePicture {
  constructor(svg, timeline, readout) {
    const plot = svg.querySelector(".plot"), number = name => +plot.getAttribute(name);
    Object.assign(this, {svg, timeline, readout, left: number("x"), width: number("width"), top: number("y"), height: number("height")});
    this.tops = plot.dataset.tops.split(" ").map(Number);
    this.home = this.view = [0, timeline.length];
    this.lanes = svg.querySelector(".lanes");
    this.activity = new Int8Array(2 * this.width);
    this.micro = new Int32Array(2 * this.width);
    this.best = new Float64Array(2 * this.width);
  }
  x(at) { return this.left + (at - this.view[0]) / (this.view[1] - this.view[0]) * this.width; }
  at(x) { return this.view[0] + (x - this.left) / this.width * (this.view[1] - this.view[0]); }

  fillCells(lane) {
    const {activity, micro, best} = this, cell = (this.view[1] - this.view[0]) / activity.length;
    activity.fill(-1);
    best.fill(0);
    for (let i = 0; i < lane.start.length; i++) {
      const start = (lane.start[i] - this.view[0]) / cell, end = (lane.start[i] + lane.length[i] - this.view[0]) / cell;
      if (end <= 0) continue;
      if (start >= activity.length) break;
      for (let k = Math.max(0, Math.floor(start)); k <= end && k < activity.length; k++) {
        const part = Math.min(end, k + 1) - Math.max(start, k);
        if (part > best[k]) { best[k] = part; activity[k] = lane.activity[i]; micro[k] = lane.micro[i]; }
      }
    }
  }

  drawLane(lane, top, height) {
    const {activity, micro} = this, paths = this.timeline.activities.map(() => ""), numbers = [];
    this.fillCells(lane);
    for (let first = 0, end; first < activity.length; first = end) {
      for (end = first + 1; end < activity.length && activity[end] === activity[first] && micro[end] === micro[first]; end++);
      if (activity[first] < 0) continue;
      const x = this.left + first / 2, width = (end - first) / 2, kind = this.timeline.activities[activity[first]];
      paths[activity[first]] += `M${x} ${top + height / 2}h${width > 4 ? width - 0.7 : width}`;
      if (height >= 14 && width >= 16 && micro[first] >= 0 && ["forward", "backward", "weights"].includes(kind))
        numbers.push(element("text", {svg: 1, x: x + width / 2, y: top + height / 2 + 3.5, "text-anchor": "middle", class: kind === "forward" ? "on-light" : "on-dark"}, micro[first]));
    }
    this.lanes.append(element("rect", {svg: 1, class: "idle", x: this.left, y: top, width: this.width, height}));
    paths.forEach((d, i) => {
      const kind = this.timeline.activities[i];
      if (d) this.lanes.append(element("path", {svg: 1, d, fill: "none", stroke: `url(#work-${kind})`, "stroke-width": kind === "waiting" ? height * 0.3 : height}));
    });
    this.lanes.append(...numbers);
  }

  draw() {
    const pitch = this.timeline.lanes.length ? Math.min(...this.tops.slice(1).map((top, i) => top - this.tops[i])) : 0;
    this.lanes.replaceChildren();
    this.timeline.lanes.forEach((lane, i) => this.drawLane(lane, this.tops[i], pitch - (pitch > 12 ? 3 : 1)));
    drawTicks(this, "grid", this.top, timeText);
  }

  zoom(from, to) {
    const span = Math.min(Math.max(to - from, 1000), this.timeline.length);
    const start = Math.max(0, Math.min((from + to - span) / 2, this.timeline.length - span));
    this.view = [start, start + span];
    if (!this.pending)
      this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }
  zoomBy(factor, x = this.left + this.width / 2) {
    const at = this.at(x);
    this.zoom(at - (at - this.view[0]) / factor, at + (this.view[1] - at) / factor);
  }
  moveBy(part) {
    const by = (this.view[1] - this.view[0]) * part;
    this.zoom(this.view[0] + by, this.view[1] + by);
  }

  pointAt({x, y}) {
    const at = this.at(x), lane = this.timeline.lanes[this.tops.findLastIndex(top => top <= y)];
    if (!lane || at < this.view[0] || at > this.view[1]) return;
    const i = workAt(lane, at), who = lane.ranks > 1 ? `stage ${lane.stage}, ranks ${lane.rank}–${lane.rank + lane.ranks - 1}`
      : `rank ${lane.rank}` + (lane.stage < 0 ? "" : `, stage ${lane.stage}`);
    this.readout.textContent = `${who}, ${timeText(at)}: ` + (i < 0 ? "idle" : this.timeline.activities[lane.activity[i]] +
      (lane.micro[i] < 0 ? "" : `, micro-batch ${lane.micro[i]}`) + `, ${timeText(lane.length[i])}` +
      (lane.operations[i] ? `, ${lane.operations[i]} operation${lane.operations[i] > 1 ? "s" : ""}` : ""));
  }
}

function startTimeline() {
  const figure = document.getElementById("timeline"), readout = document.getElementById("timeline-readout");
  if (!data.timeline) return;
  const timeline = {...data.timeline, lanes: data.timeline.lanes.map(readLane)};
  const pictures = [...figure.querySelectorAll("svg.timeline")].map(svg => new TimelinePicture(svg, timeline, readout));
  addTip(figure, "Point at a block to see what it is; drag across to zoom; double-click to see it all.");
  for (const picture of pictures) {
    listenToPointers(picture);
    listenToKeys(picture, {Escape: () => picture.zoom(...picture.home)});
  }
  addTools(figure, pictures, [["all", "show the whole step", picture => picture.zoom(...picture.home)]]);
}

// -------------------------------------------------------------------------------------------------------- sorting, scatter

function sortTable(table, column, head) {
  const down = head.getAttribute("aria-sort") === "ascending", body = table.tBodies[0];
  const value = row => { const cell = row.cells[column]; return cell.dataset.value === undefined ? cell.textContent : +cell.dataset.value; };
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", {numeric: true});
  const rows = [...body.rows].sort((a, b) => compare(value(a), value(b)) * (down ? -1 : 1));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...rows);
}

function startTables() {
  for (const table of document.querySelectorAll("table.sortable"))
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = element("button", {type: "button"}, head.textContent || "state");
      head.replaceChildren(button);
      button.addEventListener("click", () => sortTable(table, column, head));
    });
}

function startCandidates() {
  const figure = document.getElementById("candidates"), readout = document.getElementById("candidates-readout");
  if (!figure) return;
  const table = figure.parentElement.querySelector("table"), rows = [...table.tBodies[0].rows];
  const names = [...table.tHead.rows[0].cells].map(cell => cell.textContent);
  addTip(figure, "Point at one to find its row; click a heading to sort.");
  const pick = (row, scroll) => {
    rows.forEach(other => other.classList.toggle("picked", other === row));
    readout.textContent = [...row.cells].map((cell, i) => i ? `${names[i]} ${cell.textContent}` : cell.textContent)
      .filter((text, i) => row.cells[i].textContent).join(", ");
    if (scroll) row.scrollIntoView({block: "nearest"});
  };
  for (const dot of figure.querySelectorAll(".candidate")) {
    dot.addEventListener("pointerenter", () => pick(rows[dot.dataset.row], false));
    dot.addEventListener("click", () => pick(rows[dot.dataset.row], true));
  }
}

startTables();
startMemory();
startTimeline();
startCandidates();
document.documentElement.dataset.ready = "yes";
})();
