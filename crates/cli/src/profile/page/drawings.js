"use strict";
// What the page is drawn with: elements, numbers, charts and flame graphs. Text from the profile is only ever set as text.

const at = (id) => document.getElementById(id);

const data = JSON.parse(document.getElementById("data").textContent);

/** An element with attributes and children. `text`: its text. Functions are listeners. */
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "rect", "path", "line", "text"].includes(tag);
  const element = svg ? document.createElementNS(at("blank").namespaceURI, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") element.textContent = value;
    else if (name === "tip") addTip(element, value);
    else if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/** A time of so many nanoseconds, as the terminal shows it. */
function time(ns) {
  const [scaled, unit] = ns < 1e3 ? [ns, "ns"] : ns < 1e6 ? [ns / 1e3, "us"] : ns < 1e9 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
  return (unit === "ns" ? Math.round(scaled) : scaled < 9.95 ? scaled.toFixed(1) : scaled.toFixed(0)) + " " + unit;
}

function count(number) {
  if (number < 1e4) return String(number);
  if (number < 1e6) return (number / 1e3).toFixed(0) + " k";
  if (number < 1e9) return (number / 1e6).toFixed(number < 1e7 ? 1 : 0) + " M";
  return (number / 1e9).toFixed(1) + " G";
}

function percent(part, whole) {
  const share = whole > 0 ? (100 * part) / whole : 0;
  return share <= 0 ? "0%" : share < 0.1 ? "<0.1%" : share < 9.95 ? share.toFixed(1) + "%" : share.toFixed(0) + "%";
}

const sum = (list, of) => list.reduce((total, item) => total + of(item), 0);

const colour = (lock) => `var(--c${Math.min(lock, 8)})`;

/** Shows a text beside the pointer while it is over the element. The text is made when it is needed. */
function addTip(element, text) {
  const tip = at("tip");
  element.addEventListener("pointermove", (event) => {
    tip.hidden = false;
    tip.textContent = typeof text === "function" ? text(event) : text;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8)) + "px";
    tip.style.top = (event.clientY + height + 24 > innerHeight ? event.clientY - height - 10 : event.clientY + 16) + "px";
  });
  element.addEventListener("pointerleave", () => { tip.hidden = true; });
}

/**
 * A table that can be sorted by each column. A column has a title, `text(row)`, and perhaps `sort(row)`, a number, and
 * `cell(row)`, an element. `open(row, line)` is called when a line is clicked.
 */
function drawTable(table, columns, rows, open) {
  let sorted = -1;
  const fill = () => {
    const lines = rows.map((row) => {
      const line = make("tr", open ? { class: "open", tabindex: 0 } : {});
      for (const column of columns) {
        const cell = make("td", column.sort ? {} : { class: "text" });
        if (column.cell) cell.append(column.cell(row));
        else cell.textContent = column.text(row);
        line.append(cell);
      }
      line.words = columns.map((column) => (column.text ? column.text(row) : "")).join(" ").toLowerCase();
      if (open) {
        line.addEventListener("click", () => open(row, line));
        line.addEventListener("keydown", (event) => { if (event.key === "Enter") open(row, line); });
      }
      return line;
    });
    const heads = columns.map((column, number) => make("th", {
      text: column.title,
      class: (column.sort ? "" : "text") + (number === sorted ? " sorted" : ""),
      click: () => {
        sorted = number;
        const by = column.sort || column.text;
        rows = [...rows].sort((a, b) => (column.sort ? by(b) - by(a) : by(a).localeCompare(by(b))));
        fill();
      },
    }));
    table.replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...lines));
  };
  fill();
}

/** How many durations there were of each length, over a logarithmic axis. */
function histogram(lengths) {
  if (!lengths.buckets.length) return make("p", { class: "hint", text: "none was measured" });
  // Four bars for each power of two: the recording's buckets are finer than a screen.
  const bars = new Map();
  for (const [start, end, many] of lengths.buckets) {
    const bar = Math.floor(4 * Math.log2(Math.max(1, (start + end) / 2)));
    bars.set(bar, (bars.get(bar) || 0) + many);
  }
  const keys = [...bars.keys()];
  const [first, last] = [Math.min(...keys) - 1, Math.max(...keys) + 1];
  const total = sum([...bars.values()], (many) => many);
  const top = Math.max(...bars.values());
  const [width, height] = [560, 110];
  const step = width / (last - first + 1);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height + 18}`, role: "img" });
  for (const [bar, many] of bars) {
    const tall = Math.max(1, (many / top) * height);
    svg.append(make("rect", {
      x: (bar - first) * step, y: height - tall, width: Math.max(1, step - 1), height: tall, fill: "var(--accent)",
      tip: `${time(2 ** (bar / 4))} to ${time(2 ** ((bar + 1) / 4))}: ${count(many)} (${percent(many, total)})`,
    }));
  }
  svg.append(make("line", { x1: 0, x2: width, y1: height, y2: height, class: "axis" }));
  const every = Math.max(1, Math.ceil((last - first) / 8));
  for (let bar = first; bar <= last; bar += every) {
    // A label that begins near the right border would be cut.
    const anchor = (bar - first) * step > width - 50 ? "end" : "start";
    const x = anchor === "end" ? width : (bar - first) * step;
    svg.append(make("text", { x, y: height + 13, "text-anchor": anchor, text: time(2 ** (bar / 4)) }));
  }
  return svg;
}

/** Threads that waited for each lock, one on top of the other, over time. */
function area(timeline, names) {
  const [width, height, left] = [1160, 190, 34];
  const columns = timeline.rows[0].length;
  const totals = timeline.rows[0].map((_, column) => sum(timeline.rows, (row) => row[column]));
  const top = Math.max(1e-9, ...totals);
  const svg = make("svg", { viewBox: `0 0 ${width + left} ${height + 20}`, role: "img" });
  const x = (column) => left + (column / columns) * width;
  const y = (value) => height - (value / top) * (height - 8);
  const below = new Array(columns).fill(0);
  timeline.rows.forEach((row, lock) => {
    if (!row.some((value) => value > 0)) return;
    let up = "", down = "";
    row.forEach((value, column) => {
      up += `L${x(column).toFixed(1)} ${y(below[column] + value).toFixed(1)}L${x(column + 1).toFixed(1)} ${y(below[column] + value).toFixed(1)}`;
      down = `L${x(column + 1).toFixed(1)} ${y(below[column]).toFixed(1)}L${x(column).toFixed(1)} ${y(below[column]).toFixed(1)}` + down;
      below[column] += value;
    });
    svg.append(make("path", {
      d: "M" + up.slice(1) + down + "Z", fill: colour(lock),
      tip: (event) => {
        const box = svg.getBoundingClientRect();
        const place = ((event.clientX - box.left) / box.width) * (width + left) - left;
        const column = Math.max(0, Math.min(columns - 1, Math.floor((place / width) * columns)));
        return `${names(lock)}\n${row[column].toFixed(2)} threads wait, of ${totals[column].toFixed(2)}, at ${time(column * timeline.column)}`;
      },
    }));
  });
  svg.append(make("line", { x1: left, x2: left + width, y1: height, y2: height, class: "axis" }));
  for (const value of [0, top / 2, top]) {
    svg.append(make("text", { x: 0, y: y(value) + 4, text: value < 10 ? value.toFixed(1) : value.toFixed(0) }));
  }
  for (let mark = 0; mark <= 8; mark++) {
    const anchor = mark === 8 ? "end" : "start";
    svg.append(make("text", { x: left + (mark / 8) * width, y: height + 15, "text-anchor": anchor, text: time((mark / 8) * columns * timeline.column) }));
  }
  return svg;
}

/** A tree of functions from stacks: pairs of a list of names, outermost first, and a time. */
function tree(stacks) {
  const root = { name: "all", value: 0, children: new Map() };
  for (const [names, value] of stacks) {
    let node = root;
    node.value += value;
    for (const name of names) {
      if (!node.children.has(name)) node.children.set(name, { name, value: 0, children: new Map(), parent: node });
      node = node.children.get(name);
      node.value += value;
    }
  }
  return root;
}

/** Draws a tree with its root at the top. `matches(name)` says what the search found. */
class Flame {
  constructor(place, matches) {
    this.place = place;
    this.matches = matches;
  }

  show(root) {
    this.root = this.zoomed = root;
    this.draw();
  }

  draw() {
    const boxes = [];
    let deepest = 0;
    const add = (node, left, width, depth) => {
      // Narrower boxes cannot be seen or clicked.
      if (width < 0.0012) return;
      deepest = Math.max(deepest, depth);
      const box = make("div", {
        text: node.name.replace(/^\u0001/, ""),
        tip: `${node.name.replace(/^\u0001/, "")}\n${time(node.value)}, ${percent(node.value, this.root.value)} of all`,
        click: () => { this.zoomed = node; this.draw(); },
      });
      box.style.left = 100 * left + "%";
      box.style.width = 100 * width + "%";
      box.style.top = 19 * depth + "px";
      if (node.name.startsWith("\u0001")) box.classList.add("lock");
      if (this.matches(node.name)) box.classList.add("hit");
      boxes.push(box);
      return box;
    };
    const above = [];
    for (let node = this.zoomed.parent; node; node = node.parent) above.unshift(node);
    above.forEach((node, depth) => add(node, 0, 1, depth).classList.add("faded"));
    const draw = (node, left, width, depth) => {
      if (!add(node, left, width, depth)) return;
      const children = [...node.children.values()].sort((a, b) => b.value - a.value);
      for (const child of children) {
        const part = (width * child.value) / node.value;
        draw(child, left, part, depth + 1);
        left += part;
      }
    };
    if (this.root.value > 0) draw(this.zoomed, 0, 1, above.length);
    else boxes.push(make("p", { class: "hint", text: "No thread waited." }));
    this.place.style.height = this.root.value > 0 ? 19 * (deepest + 1) + 2 + "px" : "auto";
    this.place.replaceChildren(...boxes);
  }
}
