"use strict";
// The sections of the page, from top to bottom.

const causes = { "-1": "(handover: nobody held it)", "-2": "(other holders)", "-3": "(not known)", "-4": "(still held at the deadline)" };
const wrapper = data.naming;

/** A frame as people write it: function (file:line). */
function place(number) {
  const [name, file, line] = data.frames[number];
  return file ? `${name} (${file}${line ? ":" + line : ""})` : name;
}

/** The place that names a stack, or the reason that stands in its stead. */
function named(stack) {
  if (stack < 0) return causes[stack];
  const frames = data.stacks[stack];
  return frames.length ? place(frames[Math.min(wrapper[stack], frames.length - 1)]) : "[unknown]";
}

const whole = (stack) => data.stacks[stack].map(place).join("\n");

const lockName = (lock) => (lock < 8 && data.locks[lock] ? data.locks[lock].name : "all others");

let words = "";
const matches = (text) => words !== "" && text.toLowerCase().includes(words);

function verdict() {
  const section = at("verdict");
  data.verdict.forEach((text, number) => section.append(make("p", { class: "verdict" + (number > 1 ? " more" : ""), text })));
  if (data.advice.length) {
    section.append(make("h3", { text: "What to try" }));
    section.append(make("ul", {}, ...data.advice.map((text) => make("li", { text }))));
  }
}

/** Calls that got the lock, and those that gave up at a deadline. */
const calls = (lock) => lock.acquired + lock.timeouts;

function locks() {
  const all = Math.max(1, data.waited);
  const columns = [
    { title: "lock", text: (lock) => lock.name },
    { title: "kind", text: (lock) => (lock.kind.startsWith("reader") ? `rw, ${percent(lock.reads, lock.acquired)} read` : lock.kind) },
    { title: "locks", text: (lock) => count(lock.instances), sort: (lock) => lock.instances },
    { title: "acquired", text: (lock) => count(lock.acquired), sort: (lock) => lock.acquired },
    { title: "waited", text: (lock) => percent(lock.contended, calls(lock)), sort: (lock) => lock.contended / Math.max(1, calls(lock)) },
    {
      title: "lost",
      sort: (lock) => lock.lost,
      cell: (lock) => {
        const bar = make("span", { class: "bar" });
        bar.style.width = (60 * lock.lost) / all + "px";
        return make("span", {}, bar, `${time(lock.lost)} `, make("b", { text: percent(lock.lost, data.waited) }));
      },
    },
    { title: "wait 99%", text: (lock) => time(lock.wait.p99), sort: (lock) => lock.wait.p99 },
    { title: "longest", text: (lock) => time(lock.wait.max), sort: (lock) => lock.wait.max },
    { title: "held", text: (lock) => (lock.hold.count ? time(lock.hold.sum / lock.hold.count) : "-"), sort: (lock) => lock.hold.sum / Math.max(1, lock.hold.count) },
    { title: "held 99%", text: (lock) => (lock.hold.count ? time(lock.hold.p99) : "-"), sort: (lock) => lock.hold.p99 },
    { title: "most waiting", text: (lock) => count(lock.most), sort: (lock) => lock.most },
  ];
  drawTable(at("lock-table"), columns, data.locks, (lock, line) => {
    for (const other of line.parentElement.children) other.classList.toggle("chosen", other === line);
    detail(lock);
  });
  if (data.locks.length) detail(data.locks[0]);
}

/** One class of locks. */
function detail(lock) {
  const fact = (name, value) => [make("span", {}, make("b", { text: value }), ` ${name}`)];
  const facts = make("p", { class: "facts" },
    ...fact("acquisitions", count(lock.acquired)), ...fact("for reading", count(lock.reads)), ...fact("waited", count(lock.contended)),
    ...fact("failed tries", count(lock.failed)), ...fact("timeouts", count(lock.timeouts)),
    ...(lock.still[0] ? fact("threads still waited at the end", `${count(lock.still[0])} (${time(lock.still[1])})`) : []),
    ...fact("of the waiting: handover", percent(lock.handover, lock.wait.sum)),
    ...(lock.spun[1] ? fact("of the waiting: spinning", percent(...lock.spun)) : []),
    ...fact("threads waited on average", lock.waiting.toFixed(2)), ...fact("threads waited at most", count(lock.most)),
    ...(lock.reads ? [...fact("readers inside on average", lock.readers[0].toFixed(2)), ...fact("seen at most", count(lock.readers[1]))] : []),
    ...(lock.next[3] ? [...fact("by another thread than the one before", percent(lock.next[0], lock.next[3])),
      ...fact("on another CPU", percent(lock.next[1], lock.next[3])), ...fact("on another NUMA node", percent(lock.next[2], lock.next[3]))] : []),
    ...fact("to lock again after a condition", time(lock.again)));
  const sites = (title, list) => {
    const table = make("table");
    drawTable(table, [
      { title, text: (row) => named(row[0]), cell: (row) => make("span", { text: named(row[0]), tip: whole(row[0]) }) },
      { title: "waits", text: (row) => count(row[1]), sort: (row) => row[1] },
      { title: "lost", text: (row) => time(row[2]), sort: (row) => row[2] },
      { title: "±", text: (row) => margin(row[3]), sort: (row) => row[3] },
      { title: "share", text: (row) => percent(row[2], lock.wait.sum), sort: (row) => row[2] },
      ...(list.some((row) => row[4]) ? [{ title: "held", text: (row) => (row[4] ? time(row[5] / row[4]) : "-"), sort: (row) => row[5] / Math.max(1, row[4]) }] : []),
    ], merged(list).slice(0, 30));
    return table;
  };
  const again = (list) => {
    const table = make("table");
    const rows = new Map();
    for (const [waiter, cause, ns, error] of list) {
      const key = named(waiter) + "\n" + named(cause);
      const row = rows.get(key) || [waiter, cause, 0, 0];
      rows.set(key, [row[0], row[1], row[2] + ns, Math.hypot(row[3], error)]);
    }
    const tip = (stack) => (stack < 0 ? named(stack) : whole(stack));
    const place = (title, index) => ({ title, text: (row) => named(row[index]), cell: (row) => make("span", { text: named(row[index]), tip: tip(row[index]) }) });
    drawTable(table, [
      place("to lock again after the condition at", 0),
      place("because it was held from", 1),
      { title: "lost", text: (row) => time(row[2]), sort: (row) => row[2] },
      { title: "±", text: (row) => margin(row[3]), sort: (row) => row[3] },
      { title: "share", text: (row) => percent(row[2], lock.again), sort: (row) => row[2] },
    ], [...rows.values()].sort((a, b) => b[2] - a[2]).slice(0, 30));
    return table;
  };
  const shape = (title, lengths) => make("div", {},
    make("h3", { text: !lengths.count ? `${title}: none was measured` : `${title}: half within ${time(lengths.p50)}, 99% within ${time(lengths.p99)}, 99.9% within ${time(lengths.p999)}, longest ${time(lengths.max)}` }),
    ...(lengths.count ? [histogram(lengths)] : []));
  const parts = lock.parts.length > 1
    ? [make("p", { class: "hint", text: "Time lost for each lock: " + lock.parts.map(time).join(", ") + (lock.parts.length === 32 ? ", ..." : "") })]
    : [];
  at("lock").replaceChildren(make("div", { class: "panel" },
    make("h3", { text: `${lock.name}: ${lock.kind}, ${lock.origin}, served by ${lock.served || "glibc"}` }), facts, ...parts,
    make("div", { class: "columns" }, shape("Waits", lock.wait), shape("Holds", lock.hold)),
    ...(lock.waiters.length || lock.holders.length
      ? [make("div", { class: "columns" }, make("div", {}, sites("blocked at", lock.waiters)), make("div", {}, sites("because it was held from", lock.holders)))]
      : []),
    ...(lock.reacquires.length ? [again(lock.reacquires)] : [])));
}

/** Half of the interval that has the truth in 95 of 100 runs. */
const margin = (error) => (error ? time(2 * error) : "");

/** Lines [stack, count, time, its standard error, measured holds, their time] of the same place together. */
function merged(list) {
  const places = new Map();
  for (const line of list) {
    const found = places.get(named(line[0]));
    if (found) line.forEach((value, column) => { if (column) found[column] = column === 3 ? Math.hypot(found[3], value) : found[column] + value; });
    else places.set(named(line[0]), [...line]);
  }
  return [...places.values()].sort((a, b) => b[2] - a[2]);
}

function timeline() {
  if (!data.timeline) {
    at("area").append(make("p", { class: "hint", text: "The recording has no single waits." }));
    return;
  }
  const shown = data.timeline.rows.map((_, lock) => lock).filter((lock) => data.timeline.rows[lock].some((value) => value > 0));
  const item = (lock) => {
    const key = make("i");
    key.style.background = colour(lock);
    return make("span", {}, key, lockName(lock));
  };
  at("area").append(area(data.timeline, lockName), make("p", { class: "legend" }, ...shown.map(item)));
}

const flames = [new Flame(at("waiting"), matches), new Flame(at("blame"), matches)];

function showFlames() {
  const chosen = at("flame-lock").value;
  const of = (list) => (lock, number) => chosen !== "all" && chosen !== String(number) ? []
    : lock[list].map(([stack, , ns]) => [[...data.stacks[stack].map((frame) => data.frames[frame][0]).reverse(), "\u0001" + lock.name], ns]);
  flames[0].show(tree(data.locks.flatMap(of("waiters"))));
  flames[1].show(tree(data.locks.flatMap(of("holders"))));
}

function flameGraphs() {
  const select = at("flame-lock");
  select.append(make("option", { value: "all", text: "all locks" }));
  data.locks.slice(0, 100).forEach((lock, number) => {
    if (lock.wait.sum > 0) select.append(make("option", { value: number, text: `${lock.name} (${time(lock.wait.sum)})` }));
  });
  select.addEventListener("change", showFlames);
  showFlames();
}

function matrix() {
  const cells = new Map();
  const [rows, columns] = [new Map(), new Map()];
  for (const lock of data.locks) {
    for (const [waiter, cause, ns, error] of lock.pairs) {
      const [row, column] = [named(waiter), named(cause)];
      rows.set(row, (rows.get(row) || 0) + ns);
      columns.set(column, (columns.get(column) || 0) + ns);
      const cell = cells.get(row + "\n" + column) || { ns: 0, error: 0, locks: new Set() };
      cell.ns += ns;
      cell.error = Math.hypot(cell.error, error);
      cell.locks.add(lock.name);
      cells.set(row + "\n" + column, cell);
    }
  }
  const largest = (sums) => [...sums.entries()].sort((a, b) => b[1] - a[1]).slice(0, 12).map(([name]) => name);
  const [left, top] = [largest(rows), largest(columns)];
  if (!left.length) {
    at("matrix-table").append(make("p", { class: "hint", text: "No thread waited." }));
    return;
  }
  const most = Math.max(...[...cells.values()].map((cell) => cell.ns));
  const table = make("table", {}, make("tr", {}, make("th", { class: "text", text: "blocked at \\ held from" }),
    ...top.map((text) => make("th", { class: "holder", text }))));
  for (const row of left) {
    const line = make("tr", {}, make("td", { class: "text", text: row }));
    for (const column of top) {
      const cell = cells.get(row + "\n" + column);
      const box = make("td", { class: "cell", text: cell ? time(cell.ns) : "" });
      if (cell) {
        addTip(box, `${row}\nwaited ${time(cell.ns)}${cell.error ? ` ±${margin(cell.error)}` : ""} (${percent(cell.ns, data.waited)}) because of\n${column}\nfor ${[...cell.locks].slice(0, 5).join(", ")}`);
        box.style.background = `color-mix(in srgb, var(--c1) ${Math.round(10 + 75 * (cell.ns / most))}%, transparent)`;
      }
      line.append(box);
    }
    line.words = row.toLowerCase();
    table.append(line);
  }
  at("matrix-table").append(table);
}

function chainList() {
  const list = at("chain-list");
  if (!data.chains.length) {
    list.append(make("p", { class: "hint", text: "No holder of a contended lock was seen waiting for another one." }));
    return;
  }
  list.append(make("p", { class: "hint", text: "Concluded from the stacks: the holder of the first lock waits for the second one further down in the same call, unless it has released the first one by then." }));
  for (const [outer, holder, inner, waiter, ns] of data.chains) {
    list.append(make("p", { class: "chain" }, "Threads wait for ", make("b", { text: outer }), `, held from ${holder}, whose holder waits for `,
      make("b", { text: inner }), ` at ${waiter}: at most ${time(ns)}.`));
  }
}

function threads() {
  const span = data.seconds * 1e9;
  const lanes = new Map();
  for (const [thread, lock, start, length, cause, stack] of data.waits) {
    if (!lanes.has(thread)) lanes.set(thread, []);
    lanes.get(thread).push([lock, start, length, cause, stack]);
  }
  const lane = (thread) => {
    const box = make("span", { class: "lane" });
    for (const [lock, start, length, cause, stack] of lanes.get(thread) || []) {
      const wait = make("i", { tip: () => `${time(length)} for ${data.locks[lock].name}\nat ${named(stack)}\nheld from ${named(cause)}` });
      wait.style.left = (100 * start) / span + "%";
      wait.style.width = (100 * length) / span + "%";
      wait.style.background = colour(lock);
      box.append(wait);
    }
    return box;
  };
  const pids = new Set(data.threads.map((thread) => thread[1]));
  const rows = data.threads.map((thread, number) => [...thread, number]).sort((a, b) => b[4] - a[4]).slice(0, 200);
  drawTable(at("thread-table"), [
    { title: "thread", text: (row) => `${row[0] || "thread"} ${pids.size > 1 ? row[1] + "/" : ""}${row[2]}` },
    { title: "waits", text: (row) => count(row[5]), sort: (row) => row[5] },
    { title: "lost", text: (row) => time(row[4]), sort: (row) => row[4] },
    { title: "of its time", text: (row) => percent(row[4], row[3]), sort: (row) => row[4] / Math.max(1, row[3]) },
    { title: "for conditions", text: (row) => time(row[6]), sort: (row) => row[6] },
    { title: "recorded", text: (row) => time(row[3]), sort: (row) => row[3] },
    { title: data.waits.length ? "its longest waits" : "", sort: (row) => row[3], cell: (row) => (data.waits.length ? lane(row[7]) : "") },
  ], rows);
}

function conditions() {
  drawTable(at("condition-table"), [
    { title: "name", text: (row) => row.name },
    { title: "kind", text: (row) => row.kind },
    { title: "waits", text: (row) => count(row.waits), sort: (row) => row.waits },
    { title: "still waiting", text: (row) => count(row.still), sort: (row) => row.still },
    { title: "time", text: (row) => time(row.wait), sort: (row) => row.wait },
    { title: "timeouts", text: (row) => count(row.timeouts), sort: (row) => row.timeouts },
    { title: "notified", text: (row) => count(row.notified), sort: (row) => row.notified },
    { title: "most of it at", text: (row) => (row.waiters.length ? named(row.waiters[0][0]) : "") },
  ], data.conditions);
}

function cost() {
  const mib = (data.bytes / 1048576).toFixed(1);
  let text = `Recorded ${data.seconds.toFixed(1)} s. Profiling: ${count(data.calls)} lock calls recorded, ${mib} MiB of file, ${time(data.unwinding)} for stacks.`;
  for (const [what, many] of data.dropped) text += ` There was no room for ${count(many)} ${what}.`;
  if (data.leftOut) text += ` ${count(data.leftOut)} locks and stacks that cost little are not on this page.`;
  at("cost").append(make("p", { text }), ...data.notes.map((note) => make("p", { text: note })));
}

function search() {
  words = at("search").value.trim().toLowerCase();
  let found = 0;
  for (const line of document.querySelectorAll("tr")) {
    const hit = line.words !== undefined && matches(line.words);
    line.classList.toggle("match", hit);
    found += hit;
  }
  for (const paragraph of document.querySelectorAll(".chain")) {
    const hit = matches(paragraph.textContent);
    paragraph.classList.toggle("match", hit);
    found += hit;
  }
  flames.forEach((flame) => flame.draw());
  found += document.querySelectorAll(".flame .hit").length;
  at("found").textContent = words ? `${found} found` : "";
}

/** Sections without contents are hidden, with the links to them. */
function hideEmpty() {
  const hasWaits = data.locks.some((lock) => lock.waiters.length || lock.pairs.length);
  const filled = { locks: data.locks.length, timeline: data.timeline, flames: hasWaits, matrix: hasWaits, chains: hasWaits, threads: data.threads.length, conditions: data.conditions.length };
  for (const [section, contents] of Object.entries(filled)) {
    at(section).hidden = !contents;
    document.querySelector(`nav a[href="#${section}"]`).hidden = !contents;
  }
}

at("command").textContent = data.command;
verdict();
locks();
timeline();
flameGraphs();
matrix();
chainList();
threads();
conditions();
hideEmpty();
cost();
at("search").addEventListener("input", search);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== at("search")) {
    event.preventDefault();
    at("search").focus();
  }
});
