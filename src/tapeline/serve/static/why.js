// Why a number is what it is: its revisions, and the records behind each, a page at a time.
import { api, clock, count, element, empty, fill, isZero, minus, readable, table } from "/static/tapeline.js";

const CAUSES = {
  on_time: "on time", late: "late", correction: "correction", cancellation: "cancellation", redrive: "sent again", rebuild: "rebuild",
};

export async function explain(place, summary, key, title) {
  place.hidden = false;
  fill(place, element("p", {}, "Reading …"));
  const found = await api(`why/${summary}`, { key });
  const measures = Object.keys(found.revisions[0]?.change ?? {});
  const rows = found.revisions.map((revision) => ({ ...revision }));
  const columns = [
    { title: "published", cell: (row) => clock(row.at, true) },
    { title: "cause", cell: (row) => causeOf(row.cause) },
    ...measures.map((measure) => ({
      title: `${measure.replaceAll("_", " ")}: old → new (change)`, number: true, cell: (row) => moved(row, measure),
    })),
    {
      title: "records",
      cell: (row) => element("button", { type: "button", class: "plain", onclick: () => behind(list, summary, key, row) }, `${count(row.entries)} entries`),
    },
  ];
  const list = element("div", { "aria-live": "polite" });
  fill(
    place,
    element("h2", { tabindex: "-1" }, `Revisions of ${title}`),
    element("div", { class: "scroll" }, rows.length ? table(`${count(rows.length)} revisions, oldest first`, columns, rows) : empty("No entry was ever made here.")),
    list,
    element("button", { type: "button", onclick: () => { place.hidden = true; } }, "Close"),
  );
  place.querySelector("h2").focus();
  place.scrollIntoView({ block: "nearest" });
}

export const causeOf = (cause) => CAUSES[cause] ?? cause;

// What a revision did to one measure, in full: nothing is rounded.
export function moved(revision, measure) {
  const [change, value] = [String(revision.change[measure]), String(revision.value[measure])];
  const least = whole(revision.value[measure]);
  if (isZero(change)) return readable(value, least);
  return `${readable(minus(value, change), least)} → ${readable(value, least)} (${signed(revision.change[measure])})`;
}

const whole = (value) => (Number.isInteger(value) ? 0 : 2);

function signed(value) {
  if (isZero(String(value))) return "0";
  const text = readable(value, whole(value));
  return text.startsWith("-") || text.startsWith("−") ? text : `+${text}`;
}

// Where a record came from; of a message also what came with it, which is text and never markup.
function origin(row) {
  if (!row.message) return `${row.source} ${row.delivery ?? ""} line ${row.line ?? "?"}`;
  const { topic, partition, offset, key, headers } = row.message;
  const beside = (headers ?? []).map((header) => `header ${header.name}: ${header.value ?? ""}`);
  if (key !== null) beside.unshift(`key: ${key}`);
  return [`${row.source} ${topic}/${partition} offset ${offset}`, ...beside].join(", ");
}

async function behind(place, summary, key, revision, offset = 0) {
  const limit = 25;
  const found = await api(`why/${summary}/records`, { key, batch: revision.batch, cause: revision.cause, limit, offset });
  const known = new Set(["sign", "record", "source", "part", "at", "delivery", "line", "message"]);
  const shares = Object.keys(found.records[0] ?? {}).filter((name) => !known.has(name));
  const columns = [
    { title: "", cell: (row) => (row.sign > 0 ? "+ counted" : "− taken back") },
    { title: "record", class: "record", cell: (row) => row.record ?? "" },
    ...shares.map((name) => ({ title: name.replaceAll("_", " "), number: true, cell: (row) => readable(row[name], whole(row[name])) })),
    { title: "came with", class: "record", cell: origin },
  ];
  fill(
    place,
    element("h3", {}, `Records behind batch ${count(revision.batch)}, ${causeOf(revision.cause)}`),
    element("div", { class: "scroll" }, table(`from ${count(offset + 1)}`, columns, found.records)),
    element("p", {},
      offset > 0 ? element("button", { type: "button", onclick: () => behind(place, summary, key, revision, Math.max(0, offset - limit)) }, "Earlier") : null,
      found.next_offset !== null ? element("button", { type: "button", onclick: () => behind(place, summary, key, revision, found.next_offset) }, "More") : null,
    ),
  );
}

export function closeOnEscape(place) {
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") place.hidden = true;
  });
}
