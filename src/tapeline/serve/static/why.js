// Why a number has its value: its revisions and the records of each, page by page.
import { api, clock, count, counted, decimals, element, empty, fill, inZone, isZero, minus, readable, table } from "/static/tapeline.js";

const CAUSES = {
  on_time: "on time", late: "late", correction: "correction", cancellation: "cancellation", redrive: "redriven", code: "code changed",
};

export async function explain(place, summary, key, title, places = 2) {
  place.hidden = false;
  fill(place, element("p", {}, "Loading …"));
  const found = await api(`why/${summary}`, { key });
  const measures = Object.keys(found.revisions[0]?.change ?? {});
  const rows = found.revisions.map((revision) => ({ ...revision }));
  const columns = [
    { title: inZone("published"), class: "line", cell: (row) => clock(row.at, true) },
    { title: "cause", cell: (row) => causeOf(row.cause) },
    ...measures.map((measure) => ({
      title: `${measure.replaceAll("_", " ")}: old → new (change)`, number: true, cell: (row) => moved(row, measure, places),
    })),
    {
      title: "records",
      cell: (row) => element("button", { type: "button", class: "plain", onclick: () => showRecords(list, summary, key, { ...row, places }) }, counted(row.entries, "entry")),
    },
  ];
  const list = element("div", { "aria-live": "polite" });
  fill(
    place,
    element("h2", { tabindex: "-1" }, `Revisions of ${title}`),
    element("div", { class: "scroll" }, rows.length ? table(`${counted(rows.length, "revision")}, oldest first`, columns, rows) : empty("No entries here.")),
    list,
    element("button", { type: "button", onclick: () => { place.hidden = true; } }, "Close"),
  );
  place.querySelector("h2").focus();
  place.scrollIntoView({ block: "nearest" });
}

export const causeOf = (cause) => CAUSES[cause] ?? cause;

// How a revision changed one measure. Nothing is rounded.
export function moved(revision, measure, places = 2) {
  if (revision.value[measure] === null) return "none"; // an average without values
  const [change, value] = [String(revision.change[measure]), String(revision.value[measure])];
  const least = decimals(revision.value[measure], places);
  if (isZero(change)) return readable(value, least);
  return `${readable(minus(value, change), least)} → ${readable(value, least)} (${signed(revision.change[measure], places)})`;
}

function signed(value, places) {
  if (isZero(String(value))) return "0";
  const text = readable(value, decimals(value, places));
  return text.startsWith("-") || text.startsWith("−") ? text : `+${text}`;
}

// Where a record came from. A message also shows its key and headers, as plain text.
function origin(row) {
  if (!row.message) return `${row.source} ${row.delivery ?? ""}, line ${row.line ?? "unknown"}`;
  const { topic, partition, offset, key, headers } = row.message;
  const beside = (headers ?? []).map((header) => `header ${header.name}: ${header.value ?? ""}`);
  if (key !== null) beside.unshift(`key: ${key}`);
  return [`${row.source} ${topic}/${partition} offset ${offset}`, ...beside].join(", ");
}

async function showRecords(place, summary, key, revision, offset = 0) {
  const limit = 25;
  const found = await api(`why/${summary}/records`, { key, batch: revision.batch, cause: revision.cause, limit, offset });
  const known = new Set(["sign", "record", "source", "part", "at", "row", "delivery", "line", "message"]);
  const shares = Object.keys(found.records[0] ?? {}).filter((name) => !known.has(name));
  const columns = [
    { title: "entry", class: "line", cell: (row) => (row.sign > 0 ? "+ added" : "− reversed") },
    { title: "record", class: "record", cell: (row) => row.record ?? "" },
    ...shares.map((name) => ({ title: name.replaceAll("_", " "), number: true, cell: (row) => readable(row[name], decimals(row[name], revision.places)) })),
    { title: "origin", class: "record", cell: origin },
  ];
  fill(
    place,
    element("h3", {}, `Records of batch ${count(revision.batch)}, ${causeOf(revision.cause)}`),
    element("div", { class: "scroll" }, table(offset || found.next_offset !== null ? `Records ${count(offset + 1)}–${count(offset + found.records.length)}` : counted(found.records.length, "record"), columns, found.records)),
    element("p", {},
      offset > 0 ? element("button", { type: "button", onclick: () => showRecords(place, summary, key, revision, Math.max(0, offset - limit)) }, "Previous") : null,
      found.next_offset !== null ? element("button", { type: "button", onclick: () => showRecords(place, summary, key, revision, found.next_offset) }, "Next") : null,
    ),
  );
}

export function closeOnEscape(place) {
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") place.hidden = true;
  });
}
