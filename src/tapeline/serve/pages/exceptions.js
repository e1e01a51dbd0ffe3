// Exceptions: what lies in quarantine and why, with samples and their positions; unmatched corrections.
import { api, byId, clock, complain, count, element, empty, fill, follow, options, refreshing, table } from "/static/tapeline.js";

const ALL = "all";
const LIMIT = 50;
let offset = 0;
let acts = false;

const refresh = refreshing(async () => {
  const pipeline = await api("pipeline");
  acts = pipeline.acts;
  byId("acts").hidden = !acts;
  options(byId("table"), [ALL, ...pipeline.tables.map((one) => one.name)], byId("table").value || ALL);
  const everything = await api("quarantine", { limit: 1 });
  options(byId("reason"), [ALL, ...Object.keys(everything.reasons)], byId("reason").value || ALL);
  const chosen = (id) => (byId(id).value === ALL ? undefined : byId(id).value);
  const found = await api("quarantine", { reason: chosen("reason"), table: chosen("table"), limit: LIMIT, offset });
  byId("banner").dataset.state = everything.count ? "" : "good";
  byId("banner").textContent = everything.count ? `${count(everything.count)} records wait for somebody to decide.` : "The quarantine is empty.";
  showReasons(everything.reasons);
  showSamples(found);
  await showPending(pipeline);
});

function showReasons(reasons) {
  const rows = Object.entries(reasons).map(([reason, number]) => ({ reason, number }));
  const columns = [{ title: "reason", cell: (row) => row.reason }, { title: "records", number: true, cell: (row) => count(row.number) }];
  fill(byId("reasons"), rows.length ? table("A record may have several reasons", columns, rows) : empty("Nothing to decide."));
}

function showSamples(found) {
  const columns = [
    ...(acts ? [{ title: "choose", cell: (row) => element("input", { type: "checkbox", "data-position": row.position, "data-table": row.table, "aria-label": `choose ${row.position}` }) }] : []),
    { title: "position", class: "record", cell: (row) => element("button", { type: "button", class: "plain", onclick: () => show(row.position).catch(complain) }, row.position) },
    { title: "table", cell: (row) => row.table },
    { title: "reasons", cell: (row) => row.reasons.join("; ") },
    { title: "published", cell: (row) => clock(row.at, true) },
    { title: "record", class: "record", cell: (row) => (row.record ?? "").slice(0, 300) },
  ];
  fill(byId("samples"), found.records.length ? table(`${count(found.count)} in all, from ${count(offset + 1)}`, columns, found.records) : empty("No record here."));
  fill(
    byId("more"),
    offset > 0 ? element("button", { type: "button", onclick: () => { offset = Math.max(0, offset - LIMIT); refresh(); } }, "Newer") : "",
    found.next_offset !== null ? element("button", { type: "button", onclick: () => { offset = found.next_offset; refresh(); } }, "Older") : "",
  );
}

// One record as it came, and what was decided about it.
async function show(position) {
  const found = await api(`quarantine/${position}`);
  const place = byId("one");
  place.hidden = false;
  fill(
    place,
    element("h2", { tabindex: "-1" }, `Record ${position}, line ${found.line} of ${found.delivery}`),
    element("p", { class: "record" }, found.record),
    element("ul", {},
      found.quarantined.map((one) => element("li", {}, `in quarantine of ${one.table}: ${one.reasons.join("; ")}`)),
      found.acts.map((act) => element("li", {}, `${clock(act.at, true)} ${act.act} by ${act.who}: ${act.note}`))),
    element("button", { type: "button", onclick: () => { place.hidden = true; } }, "Close"),
  );
  place.querySelector("h2").focus();
}

async function showPending(pipeline) {
  const keyed = pipeline.tables.filter((one) => one.corrects);
  const parts = await Promise.all(keyed.map(async (one) => ({ name: one.name, ...(await api(`unmatched/${one.name}`)) })));
  const rows = parts.flatMap((part) => part.rows.map((row) => ({ table: part.name, ...row })));
  if (!rows.length) return fill(byId("pending"), empty("Every correction has found what it corrects."));
  const names = Object.keys(rows[0]).filter((name) => !name.startsWith("_"));
  fill(byId("pending"), table(`${count(rows.length)} shown`, names.map((name) => ({ title: name.replaceAll("_", " "), cell: (row) => String(row[name] ?? "") })), rows));
}

async function decide(act) {
  const boxes = [...byId("samples").querySelectorAll("input:checked")];
  for (const name of new Set(boxes.map((box) => box.dataset.table))) {
    const positions = boxes.filter((box) => box.dataset.table === name).map((box) => box.dataset.position);
    const answer = await fetch("/api/quarantine/acts", {
      method: "POST", headers: { "content-type": "application/json" },
      body: JSON.stringify({ act, positions, table: name, who: byId("who").value, note: byId("note").value }),
    });
    if (!answer.ok) throw new Error((await answer.json()).error ?? answer.statusText);
  }
  refresh();
}

byId("decide").addEventListener("submit", (event) => {
  event.preventDefault();
  decide(event.submitter.value).catch(complain);
});
byId("filters").addEventListener("change", () => { offset = 0; refresh(); });
refresh();
follow(refresh);
