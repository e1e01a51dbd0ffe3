// Any summary: its measures over time or by key, with a filter for each key column.
import { api, byId, clock, colour, complain, count, counted, decimals, draw, element, empty, fill, follow, inZone, options, plainText, readable, refreshing, table, zone } from "/static/tapeline.js";
import { closeOnEscape, explain } from "/static/why.js";

const ALL = "all";
const MOST_POINTS = 2000;
const MOST_NAMES_ABOVE = 6;
const LONGEST_LINE = 24;
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash"];
const SYMBOLS = ["circle", "square", "diamond", "cross", "triangle-up"];
const COLOURS = ["buy", "sell", "due", "good", "bad"];
let pipeline = null;

const summary = () => pipeline.summaries.find((one) => one.name === byId("name").value);

async function readKeys(of) {
  const wanted = of.key.filter((name) => name !== of.time);
  const before = [...byId("keys").querySelectorAll("select")].map((one) => one.name).join();
  if (before === wanted.join()) return;
  const selects = await Promise.all(wanted.map(async (name) => {
    const found = await api(`values/${of.name}/${name}`, { limit: 200 });
    const select = element("select", { name });
    options(select, [ALL, ...found.values.map(String)], ALL);
    return element("label", {}, `${name.replaceAll("_", " ")} `, select);
  }));
  fill(byId("keys"), selects);
}

const refresh = refreshing(async () => {
  pipeline = await api("pipeline");
  const asked = new URLSearchParams(location.search).get("name");
  const names = pipeline.summaries.map((one) => one.name);
  if (!names.length) return fill(byId("twin"), empty("This pipeline has no summaries."));
  options(byId("name"), names, byId("name").value || asked || names[0]);
  const of = summary();
  byId("about").textContent = of.about;
  await readKeys(of);
  const where = [...byId("keys").querySelectorAll("select")].filter((one) => one.value !== ALL).map((one) => `${one.name}=${one.value}`);
  const then = byId("then").value.trim();
  const found = await api(`read/${of.name}`, { where, limit: MOST_POINTS, as_reported: then });
  if (!found.rows.length) return fill(byId("twin"), empty(then ? "Nothing was published by then." : "No numbers yet. They appear with the first batch that contains records."));
  const measures = found.columns.map((one) => one.name).filter((name) => !of.key.includes(name) && !name.startsWith("_"));
  show(of, measures, found);
  await chart(of, measures, found.rows);
});

const label = (of, row) => of.key.filter((name) => name !== of.time).map((name) => row[name]).join(" · ");
const text = (value) => plainText(value, (iso) => clock(iso, true));
// Short values such as dates stay on one line; long ones may wrap.
const short = (rows, name) => rows.every((row) => text(row[name]).length <= LONGEST_LINE);

function show(of, measures, found) {
  const columns = [
    ...of.key.map((name, place) => ({
      title: name === of.time ? inZone(name.replaceAll("_", " ")) : name.replaceAll("_", " "), class: short(found.rows, name) ? "line" : "",
      cell: (row) => (place ? text(row[name]) : element("button", { type: "button", class: "plain", onclick: () => open(of, row) }, text(row[name]))),
    })),
    ...measures.map((name) => ({ title: name.replaceAll("_", " "), number: true, cell: (row) => readable(row[name], decimals(row[name])) })),
    ...(of.time ? [{ title: "status", cell: (row) => row._status ?? "" }] : []),
  ];
  const more = found.next_offset ? `, first ${counted(found.rows.length, "row")}` : "";
  fill(byId("twin"), table(`${of.name}, batch ${count(found.batch)}${more}`, columns, found.rows));
}

function open(of, row) {
  explain(byId("why"), of.name, of.key.map((name) => String(row[name])), of.key.map((name) => text(row[name])).join(", ")).catch(complain);
}

async function chart(of, measures, rows) {
  const groups = of.time ? [...new Set(rows.map((row) => label(of, row)))].slice(0, 12) : [""];
  const traces = groups.flatMap((group, g) => measures.map((measure, m) => {
    const some = of.time ? rows.filter((row) => label(of, row) === group) : rows.slice(0, 100);
    const common = {
      name: [group, measure.replaceAll("_", " ")].filter(Boolean).join(" "), y: some.map((row) => Number(row[measure])),
      customdata: some.map((row) => readable(row[measure], 0)), hovertemplate: "%{customdata}", visible: m < 2 ? true : "legendonly",
    };
    return of.time
      ? { ...common, type: "scatter", mode: "lines+markers", x: some.map((row) => row[of.time]), line: { dash: DASHES[m % 5] }, marker: { symbol: SYMBOLS[g % 5], size: 7 } }
      : { ...common, type: "bar", x: some.map((row) => of.key.map((name) => text(row[name])).join(" · ")), marker: { color: colour(COLOURS[m % 5]) } };
  }));
  // A long legend goes to the right of the chart, where it scrolls. Above the chart it would cover it.
  const beside = traces.length > MOST_NAMES_ABOVE ? { legend: { orientation: "v" }, showlegend: innerWidth > 640 } : {};
  await draw(byId("chart"), traces, { xaxis: of.time ? { title: { text: zone() } } : {}, yaxis: { tickformat: "~s" }, hovermode: "closest", ...beside });
}

byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("change", refresh);
document.addEventListener("theme", refresh);
closeOnEscape(byId("why"));
refresh();
follow(refresh);
