// Any summary: one measure over time or by key, in one unit, with a filter for each key column.
import { add, amount, api, byId, clock, colour, complain, count, counted, decimals, draw, element, empty, fill, follow, inZone, minus, options, plainText, readable, refreshing, table, UNIT, zone } from "/static/tapeline.js";
import { closeOnEscape, explain } from "/static/why.js";

const ALL = "all";
const MOST_ROWS = 1000;
const MOST_POINTS = 10000;
const MOST_GROUPS = 10;
const MOST_NAMES_ABOVE = 4;
const LONGEST_LINE = 24;
const SYMBOLS = ["circle", "square", "diamond", "cross", "triangle-up"];
const DAY = 86_400_000;
let pipeline = null;
let drawn = false;

const summary = () => pipeline.summaries.find((one) => one.name === byId("name").value);
const words = (name) => name.replaceAll("_", " ");
// The end of a window says nothing that its start does not.
const others = (of) => of.key.filter((name) => name !== of.time && name !== of.time?.replace(/_start$/, "_end"));

async function readKeys(of) {
  const wanted = others(of);
  if (byId("keys").dataset.of === of.name) return;
  const selects = await Promise.all(wanted.map(async (name) => {
    const select = element("select", { name });
    options(select, UNIT.test(name) ? await units(of, name) : [ALL, ...(await values(of, name))], ALL);
    return element("label", {}, `${words(name)} `, select);
  }));
  fill(byId("keys"), selects);
  byId("keys").dataset.of = of.name;
}

const values = async (of, name) => (await api(`values/${of.name}/${name}`, { limit: 200 })).values.map(String);

// Amounts of two currencies cannot share an axis: one is chosen, first the one with the most entries.
async function units(of, name) {
  const found = await api(`read/${of.name}`, { group: name, sum: "_entries", limit: 200 });
  return found.rows.sort((a, b) => Number(b._entries) - Number(a._entries)).map((row) => String(row[name]));
}

const chosen = () => [...byId("keys").querySelectorAll("select")].filter((one) => one.value && one.value !== ALL);

// A day of a summary with short windows, first the latest one. It moves on unless the reader chose a day.
async function readDay(of, columns, then) {
  const kind = columns.find((one) => one.name === of.time)?.type ?? "";
  const daily = !kind.startsWith("timestamp") || /day|week|month/.test(of.width ?? "");
  byId("of-day").hidden = daily;
  if (daily) return [];
  const day = byId("day");
  if (day.dataset.of !== of.name || day.dataset.chosen !== "yes") {
    const found = await api(`read/${of.name}`, { group: "_overflow", max: of.time, as_reported: then });
    const last = found.rows.map((row) => row[of.time]).sort().at(-1);
    day.value = last ? last.slice(0, 10) : "";
    Object.assign(day.dataset, { of: of.name, chosen: "no" });
  }
  if (!day.value) return [];
  const next = new Date(Date.parse(`${day.value}T00:00:00Z`) + DAY).toISOString().slice(0, 10);
  return [`${of.time}>=${day.value}`, `${of.time}<${next}`];
}

const refresh = refreshing(async () => {
  pipeline = await api("pipeline");
  const asked = new URLSearchParams(location.search).get("name");
  const names = pipeline.summaries.map((one) => one.name);
  if (!names.length) return fill(byId("twin"), empty("This pipeline has no summaries."));
  options(byId("name"), names, byId("name").value || asked || names[0]);
  const of = summary();
  byId("about").textContent = of.about;
  const then = byId("then").value.trim();
  const { columns, rows } = await api(`read/${of.name}`, { limit: 1, as_reported: then });
  if (!rows.length) return nothing(then ? "Nothing was published by then." : "No numbers yet. They appear with the first batch that contains records.");
  const measures = columns.filter((one) => !of.key.includes(one.name) && !one.name.startsWith("_"));
  options(byId("measure"), measures.map((one) => one.name), byId("measure").value || measures[0].name, words);
  await readKeys(of);
  const where = [...(await readDay(of, columns, then)), ...chosen().map((one) => `${one.name}=${one.value}`)];
  const found = await api(`read/${of.name}`, { where, limit: MOST_ROWS, as_reported: then });
  if (!found.rows.length) return nothing("No numbers match. Choose another day or other values.");
  show(of, measures, found);
  await chart(of, measures.find((one) => one.name === byId("measure").value), where, then);
});

function nothing(said) {
  fill(byId("twin"), empty(said));
  byId("said").textContent = "";
  if (drawn) Plotly.purge(byId("chart"));
  drawn = false;
}

const label = (names, row) => names.map((name) => text(row[name])).join(" · ");
const text = (value) => plainText(value, (iso) => clock(iso, true));
// Short values such as dates stay on one line; long ones may wrap.
const short = (rows, name) => rows.every((row) => text(row[name]).length <= LONGEST_LINE);

function show(of, measures, found) {
  const timed = (name) => /^\d{4}-\d\d-\d\dT/.test(found.rows[0][name] ?? "");
  const currency = of.key.find((name) => UNIT.test(name));
  const columns = [
    ...of.key.map((name, place) => ({
      title: timed(name) ? inZone(words(name)) : words(name), class: short(found.rows, name) ? "line" : "",
      cell: (row) => (place ? text(row[name]) : element("button", { type: "button", class: "plain", onclick: () => open(of, row) }, text(row[name]))),
    })),
    ...measures.map(({ name }) => ({ title: words(name), number: true, cell: (row) => amount(row[name], row[currency]) })),
    ...(of.time ? [{ title: "status", cell: (row) => row._status ?? "" }] : []),
  ];
  const more = found.next_offset ? `, first ${counted(found.rows.length, "row")}` : "";
  fill(byId("twin"), table(`${of.name}, batch ${count(found.batch)}${more}`, columns, found.rows));
}

function open(of, row) {
  explain(byId("why"), of.name, of.key.map((name) => String(row[name])), of.key.map((name) => text(row[name])).join(", ")).catch(complain);
}

// The groups of what is not filtered, largest first, each with its total.
async function largest(of, measure, where, then) {
  const fixed = new Set(chosen().map((one) => one.name));
  const names = others(of).filter((name) => !fixed.has(name));
  if (!names.length) return { names, groups: [{ [measure.name]: null }] };
  const found = await api(`read/${of.name}`, { where, group: names, sum: measure.name, limit: MOST_POINTS, as_reported: then });
  const size = (row) => Math.abs(Number(row[measure.name] ?? 0));
  return { names, groups: found.rows.sort((a, b) => size(b) - size(a)) };
}

async function chart(of, measure, where, then) {
  const { names, groups } = await largest(of, measure, where, then);
  const top = groups.slice(0, MOST_GROUPS);
  const unit = chosen().find((one) => UNIT.test(one.name))?.value;
  const shown = of.time ? await overTime(of, measure, { where, then, names, top, all: groups }) : byName(of, measure, names, groups);
  const left = groups.length - top.length;
  const rest = measure.average ? "The others are left out: averages cannot be added up." : "The rest is added up.";
  byId("said").textContent = left ? `The ${MOST_GROUPS} largest of ${counted(groups.length, "group")} by ${words(measure.name)}. ${rest}` : "";
  const narrow = innerWidth <= 640;
  const many = shown.length > MOST_NAMES_ABOVE;
  const legend = narrow ? { orientation: "h", y: -0.4 } : many ? { orientation: "v" } : { orientation: "h", y: 1.12 };
  drawn = true;
  const title = `${words(measure.name)}${unit ? ` (${unit})` : ""}`;
  await draw(byId("chart"), shown, { xaxis: of.time ? { title: { text: zone() } } : {}, yaxis: { title: { text: title }, tickformat: "~s", rangemode: "tozero" }, hovermode: "closest", legend, showlegend: of.time !== null && names.length > 0 });
}

const common = (values) => ({ y: values.map(Number), customdata: values.map((value) => readable(value, decimals(value))), hovertemplate: "%{x}<br>%{customdata}" });

// One line per group. All points in one request if there are few groups, otherwise those of the largest.
async function overTime(of, measure, { where, then, names, top, all }) {
  const ask = async (more, group) => (await api(`read/${of.name}`, { where: [...where, ...more], group, sum: measure.name, limit: MOST_POINTS, as_reported: then })).rows;
  const few = all.length <= MOST_GROUPS;
  const points = few ? await ask([], [of.time, ...names]) : [];
  const lines = await Promise.all(top.map(async (group) => {
    const its = few ? points.filter((row) => names.every((name) => row[name] === group[name])) : await ask(names.map((name) => `${name}=${group[name]}`), [of.time]);
    return its.filter((row) => row[measure.name] !== null);
  }));
  const traces = lines.map((its, place) => line(of, measure, label(names, top[place]) || words(measure.name), its, { marker: { symbol: SYMBOLS[place % SYMBOLS.length], size: 7 } }));
  if (few || measure.average) return traces;
  const left = new Map((await ask([], [of.time])).map((row) => [row[of.time], row[measure.name]]));
  for (const row of lines.flat()) left.set(row[of.time], minus(left.get(row[of.time]), row[measure.name]));
  const rest = [...left].map(([at, value]) => ({ [of.time]: at, [measure.name]: value }));
  return [...traces, line(of, measure, "the rest", rest, { line: { dash: "dot", color: colour("due") }, marker: { color: colour("due"), size: 5 } })];
}

function line(of, measure, name, rows, style) {
  return { name, ...common(rows.map((row) => row[measure.name])), type: "scatter", mode: "lines+markers", x: rows.map((row) => row[of.time]), ...style };
}

function byName(of, measure, names, groups) {
  const bars = groups.slice(0, MOST_GROUPS).map((group) => [label(names, group) || of.name, group[measure.name]]);
  const rest = groups.slice(MOST_GROUPS);
  if (rest.length && !measure.average) bars.push(["the rest", rest.reduce((sum, group) => add(sum, group[measure.name]), "0")]);
  return [{ type: "bar", x: bars.map(([name]) => name), ...common(bars.map(([, value]) => value)), marker: { color: colour("buy") } }];
}

byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("day").addEventListener("change", () => { byId("day").dataset.chosen = "yes"; });
byId("filters").addEventListener("change", refresh);
document.addEventListener("theme", refresh);
closeOnEscape(byId("why"));
refresh();
follow(refresh);
