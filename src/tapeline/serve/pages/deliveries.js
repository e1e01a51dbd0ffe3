// Deliveries: every file, range of offsets and pull, its state, and its records with their verdicts.
import { age, api, byId, clock, complain, count, counted, element, empty, fill, follow, inZone, options, refreshing, table, zoned } from "/static/tapeline.js";

const ALL = "all";
const LIMIT = 50;
const RECORDS = 50;
const STATES = ["waiting", "on the tape", "booked", "empty", "rejected", "retried", "dismissed"];
let offset = 0;

const refresh = refreshing(async () => {
  const chosen = (id) => (byId(id).value === ALL ? undefined : byId(id).value);
  const [pipeline, found] = await Promise.all([
    api("pipeline"),
    api("deliveries", { state: chosen("state"), source: chosen("source"), name: byId("name").value.trim(), limit: LIMIT, offset }),
  ]);
  options(byId("state"), [ALL, ...STATES], byId("state").value || ALL);
  options(byId("source"), [ALL, ...pipeline.sources], byId("source").value || ALL);
  showGlance(found);
  showList(found);
});

function showGlance(found) {
  const banner = byId("banner");
  const said = found.rejected
    ? `✗ ${counted(found.rejected, "rejected file")}. Correct the file, then retry it or dismiss it.`
    : found.newest ? "✓ Nothing is rejected." : "Nothing was delivered yet.";
  banner.dataset.state = found.rejected ? "bad" : found.newest ? "good" : "";
  if (banner.textContent !== said) banner.textContent = said;
  const figure = (words, value) => element("div", {}, element("dt", {}, words), element("dd", {}, value));
  const last = found.last_booked;
  const link = (row) => (row ? [opener(row), ` ${age(row.published_at ?? row.arrived_at)} ago`] : "none");
  fill(
    byId("glance"),
    figure("processed last", link(last)), figure("newest", link(found.newest)),
    figure("waiting", count(found.waiting)), figure("rejected", count(found.rejected)),
  );
}

const title = (row) => (row.offsets ? `${row.name} offsets ${row.offsets[0]} to ${row.offsets[1]}` : row.name);
const opener = (row) => element("button", { type: "button", class: "plain left", onclick: () => show(row.id ?? row.name).catch(complain) }, title(row));

function showList(found) {
  const marks = { booked: "good", rejected: "bad" };
  const columns = [
    { title: "state", class: "line", cell: (row) => element("span", { class: marks[row.state] ?? "" }, row.state) },
    { title: "name", class: "record", cell: opener },
    { title: "source", class: "line", cell: (row) => row.source },
    { title: "kind", class: "line", cell: (row) => row.kind },
    { title: inZone("arrived"), class: "line", cell: (row) => clock(row.arrived_at, true) },
    { title: "records", number: true, cell: (row) => (row.records === null ? "" : count(row.records)) },
    { title: "batch", number: true, cell: (row) => (row.batch === null ? "" : count(row.batch)) },
    { title: "what happened", class: "wide", cell: happened },
  ];
  const rows = found.deliveries;
  const words = rows.length ? `${count(offset + 1)}–${count(offset + rows.length)}, newest first` : "";
  fill(byId("list"), rows.length ? table(words, columns, rows) : empty("No deliveries match."));
  fill(
    byId("more"),
    offset > 0 ? element("button", { type: "button", onclick: () => { offset = Math.max(0, offset - LIMIT); refresh(); } }, "Newer") : "",
    found.next_offset !== null ? element("button", { type: "button", onclick: () => { offset = found.next_offset; refresh(); } }, "Older") : "",
  );
}

// The verdicts in the first table; of later tables only what needs review.
function happened(row) {
  const said = row.problem ? [row.problem] : [];
  if (row.decided) said.push(`${row.decided.act} by ${row.decided.who} at ${zoned(row.decided.at)}`);
  Object.entries(row.verdicts).forEach(([name, verdicts], place) => {
    const shown = Object.entries(verdicts).filter(([verdict]) => place === 0 || verdict === "quarantined");
    const words = shown.map(([verdict, number]) => `${verdict} ${count(number)}`).join(", ");
    if (words) said.push(place === 0 ? words : `${name}: ${words}`);
  });
  return said.join("; ");
}

// One delivery: its facts, and its records with line, position, verdict and reasons.
async function show(name, from = 0, verdict = "") {
  const found = await api(`deliveries/${name.split("/").map(encodeURIComponent).join("/")}`, { limit: RECORDS, offset: from, verdict });
  const place = byId("one");
  place.hidden = false;
  const facts = [
    ["state", found.state], ["id", found.id], ["arrived", zoned(found.arrived_at)], ["records", found.records === null ? "" : count(found.records)],
    ["batch", found.batch === null ? "" : count(found.batch)], ["published", zoned(found.published_at)], ["what happened", happened(found)], ["kept as", found.kept_as],
  ].filter(([, value]) => value);
  fill(
    place,
    element("h2", { tabindex: "-1" }, title(found)),
    element("dl", { class: "figures" }, facts.map(([words, value]) => element("div", {}, element("dt", {}, words), element("dd", {}, value)))),
    found.others.length ? element("p", {}, "Others with this name: ", found.others.map((id) => element("button", { type: "button", class: "plain", onclick: () => show(id).catch(complain) }, id))) : "",
    remedy(found),
    verdicts(found, name, verdict),
    records(found, from),
    from > 0 ? element("button", { type: "button", onclick: () => show(name, Math.max(0, from - RECORDS), verdict).catch(complain) }, "Earlier records") : "",
    found.next_offset !== null ? element("button", { type: "button", onclick: () => show(name, found.next_offset, verdict).catch(complain) }, "Later records") : "",
    element("button", { type: "button", onclick: () => { place.hidden = true; } }, "Close"),
  );
  place.querySelector("h2").focus();
}

function remedy(found) {
  if (found.state !== "rejected") return "";
  if (!found.id) return element("p", {}, "The file is still in the input folder. Correct it or its manifest there; it is then taken without a retry.");
  return element("div", {}, element("p", {}, "Correct the file on the server, then retry it; or dismiss it:"), element("pre", {}, `tapeline deliveries retry ${found.id}\ntapeline deliveries dismiss ${found.id}`));
}

// Buttons that show only the records with one verdict.
function verdicts(found, name, chosen) {
  const words = [...new Set(Object.values(found.verdicts).flatMap((one) => Object.keys(one)))].sort();
  if (words.length < 2 && !chosen) return "";
  const button = (verdict) => element("button", { type: "button", "aria-pressed": String(chosen === verdict), onclick: () => show(name, 0, verdict).catch(complain) }, verdict || "all records");
  return element("p", {}, ["", ...words].map(button));
}

function records(found, from) {
  if (!found.shown.length) return "";
  const said = (one) => [`${one.table}: ${one.verdict}`, ...one.reasons, ...one.details].join("; ");
  const columns = [
    { title: found.offsets ? "offset" : "line", number: true, cell: (row) => count(row.offset ?? row.line) },
    { title: "position", class: "record line", cell: (row) => row.position },
    { title: "verdict and reasons", class: "wide", cell: (row) => (row.verdicts.length ? row.verdicts.map((one) => element("div", {}, said(one))) : "not processed yet") },
    { title: "key", class: "record line", cell: (row) => keyLink(row.verdicts.find((one) => one.key)?.key) },
    { title: "record", class: "record", cell: (row) => (row.record ?? "").slice(0, 200) },
  ];
  const words = `Records ${count(from + 1)}–${count(from + found.shown.length)}`;
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Records of this delivery" }, table(words, columns, found.shown));
}

const keyLink = (key) => (key ? element("a", { href: `/search?${new URLSearchParams({ key })}` }, key) : "");

byId("filters").addEventListener("submit", (event) => { event.preventDefault(); offset = 0; refresh(); });
byId("filters").addEventListener("change", () => { offset = 0; refresh(); });
refresh();
follow(refresh);
setInterval(refresh, 5000);
