// Exceptions: quarantined records by kind of problem, what can be done, and corrections without an original.
import { age, api, byId, clock, complain, count, counted, element, empty, fill, follow, inZone, options, origin, plainText, range, reason, refreshing, table, zoned } from "/static/tapeline.js";

const ALL = "all";
const LIMIT = 50;
const KINDS = {
  unreadable: ["Unreadable records", "The record, or one of its fields, does not have the declared form."],
  step: ["Records on which a step fails", "The step's own code fails on the record."],
  conflict: ["Refused corrections", "A record with the same key and version counts already. It had other content."],
  rule: ["Broken rules", "The record was read and breaks a rule of its table."],
};
let offset = 0;
let acts = false;

const refresh = refreshing(async () => {
  const [pipeline, me] = await Promise.all([api("pipeline"), api("me")]);
  acts = me.acts;
  byId("acts").hidden = !acts;
  byId("who").textContent = me.name;
  byId("reads").hidden = acts || !me.acts_are_on;
  byId("reads").textContent = `${me.name ? `${me.name}, you` : "You"} can read this page only. To redrive or dismiss records, log in with a token that has the role act.`;
  const everything = await api("quarantine", { limit: 1 });
  options(byId("table"), [ALL, ...pipeline.tables.map((one) => one.name)], byId("table").value || ALL);
  options(byId("kind"), [ALL, ...Object.keys(KINDS)], byId("kind").value || ALL, (kind) => KINDS[kind]?.[0] ?? kind);
  options(byId("reason"), [ALL, ...Object.keys(everything.reasons)], byId("reason").value || ALL);
  const chosen = (id) => (byId(id).value === ALL ? undefined : byId(id).value);
  const found = await api("quarantine", { kind: chosen("kind"), reason: chosen("reason"), table: chosen("table"), limit: LIMIT, offset });
  byId("banner").dataset.state = everything.count ? "" : "good";
  byId("banner").textContent = everything.count ? `${counted(everything.count, "record")} ${everything.count === 1 ? "needs" : "need"} review.` : "✓ The quarantine is empty.";
  showGroups(everything.groups);
  showSamples(found);
  await showPending(pipeline);
});

// One table for each kind of problem, with what its readers can do.
function showGroups(groups) {
  const columns = [
    { title: "reason", cell: (row) => element("button", { type: "button", class: "plain left", onclick: () => choose(row) }, row.reason) },
    { title: "table", class: "line", cell: (row) => row.table },
    { title: "records", number: true, cell: (row) => count(row.count) },
    { title: "oldest", class: "line", cell: (row) => old(row.oldest) },
    { title: "newest", class: "line", cell: (row) => old(row.newest) },
    { title: "what you can do", class: "wide", cell: remedies },
  ];
  const parts = Object.entries(KINDS).map(([kind, [title, about]]) => {
    const rows = groups.filter((one) => one.kind === kind);
    if (!rows.length) return null;
    const listed = table(about, columns, rows);
    return element("section", { "data-kind": kind }, element("h2", {}, title), element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, listed));
  });
  fill(byId("reasons"), groups.length ? parts.filter(Boolean) : empty("Nothing to review."));
}

const old = (iso) => element("span", { title: zoned(iso) }, age(iso));

function remedies(row) {
  const words = row.remedies.map((one) => (one.startsWith("fix ") && row.declared ? `${one}, ${row.declared}` : one));
  return words.join(" · ");
}

function choose(group) {
  for (const [id, value] of Object.entries({ kind: group.kind, reason: group.reason, table: group.table })) byId(id).value = value;
  offset = 0;
  refresh();
  byId("samples").scrollIntoView({ block: "nearest" });
}

function showSamples(found) {
  const all = element("input", { type: "checkbox", "aria-label": "select all records shown", onchange: (event) => { for (const box of byId("samples").querySelectorAll("tbody input")) box.checked = event.target.checked; } });
  const columns = [
    ...(acts ? [{ title: all, cell: (row) => element("input", { type: "checkbox", "data-position": row.position, "data-table": row.table, "aria-label": `select ${row.position}` }) }] : []),
    { title: "position", class: "record line", cell: (row) => element("button", { type: "button", class: "plain", onclick: () => show(row.position).catch(complain) }, row.position) },
    { title: "from", class: "record", cell: origin },
    { title: "table", cell: (row) => row.table },
    { title: "reasons", cell: (row) => row.reasons.join("; ") },
    { title: "age", class: "line", cell: (row) => old(row.at) },
    { title: inZone("published"), class: "line", cell: (row) => clock(row.at, true) },
    { title: "record", class: "record", cell: (row) => (row.record ?? "").slice(0, 200) },
  ];
  fill(byId("samples"), found.records.length ? table(range(offset, found.records.length, found.count), columns, found.records) : empty("No quarantined records match."));
  fill(
    byId("more"),
    offset > 0 ? element("button", { type: "button", onclick: () => { offset = Math.max(0, offset - LIMIT); refresh(); } }, "Newer") : "",
    found.next_offset !== null ? element("button", { type: "button", onclick: () => { offset = found.next_offset; refresh(); } }, "Older") : "",
  );
}

// One record as it arrived, the actions taken on it, and what its reader can do.
async function show(position) {
  const found = await api(`quarantine/${position}`);
  const place = byId("one");
  place.hidden = false;
  const came = origin({ ...found, ...(found.message ?? {}) });
  fill(
    place,
    element("h2", { tabindex: "-1" }, `Record ${position}, from ${came}`),
    element("p", { class: "record" }, found.record ?? ""),
    element("ul", {},
      found.quarantined.map((one) => element("li", {}, `quarantined by table ${one.table}: ${[...one.reasons, ...(one.details ?? [])].join("; ")}`)),
      found.acts.map((act) => element("li", {}, `${zoned(act.at)}: ${act.act} by ${act.who}${act.note ? `: ${act.note}` : ""}`))),
    found.quarantined.length ? (acts ? correction(position, found) : commands(position)) : null,
    element("button", { type: "button", onclick: () => { place.hidden = true; } }, "Close"),
  );
  place.querySelector("h2").focus();
}

// Without the role act: the commands for somebody at the server.
function commands(position) {
  const lines = [`tapeline quarantine redrive ${position}`, `tapeline quarantine redrive ${position} --record corrected.txt`, `tapeline quarantine dismiss ${position}`];
  return element("div", {}, element("p", {}, "On the server, these commands redrive, correct and dismiss it:"), element("pre", {}, lines.join("\n")));
}

function correction(position, found) {
  const text = element("textarea", { "aria-label": "Corrected record", rows: "5", maxlength: "50000", spellcheck: "false" });
  text.value = found.record ?? "";
  const tables = found.quarantined.map((one) => one.table);
  const send = (event) => { event.preventDefault(); save({ act: "redrive", positions: [position], table: tables[0], record: text.value }).then(() => { byId("one").hidden = true; }).catch(complain); };
  return element("form", { class: "correct", onsubmit: send }, element("label", {}, "Correct the record ", text), element("button", { type: "submit" }, "Redrive corrected record"));
}

async function showPending(pipeline) {
  const keyed = pipeline.tables.filter((one) => one.corrects);
  const parts = await Promise.all(keyed.map(async (one) => ({ name: one.name, ...(await api(`unmatched/${one.name}`)) })));
  const rows = parts.flatMap((part) => part.rows.map((row) => ({ table: part.name, ...row })));
  if (!rows.length) return fill(byId("pending"), empty("Every correction has its original."));
  const names = Object.keys(rows[0]).filter((name) => !name.startsWith("_"));
  fill(byId("pending"), table(counted(rows.length, "correction"), names.map((name) => ({ title: name.replaceAll("_", " "), cell: (row) => plainText(row[name]) })), rows));
}

async function save(decided) {
  const answer = await fetch("/api/quarantine/acts", {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ ...decided, note: byId("note").value }),
  });
  const said = await answer.json();
  if (!answer.ok) throw new Error(reason(said, answer));
  byId("done").textContent = `Saved: ${decided.act} ${counted(said.recorded, "record")}. It takes effect with the next batch.`;
  refresh();
  return said.recorded;
}

async function decide(act) {
  const boxes = [...byId("samples").querySelectorAll("tbody input:checked")];
  if (!boxes.length) byId("done").textContent = "Select at least one record first.";
  let saved = 0;
  for (const name of new Set(boxes.map((box) => box.dataset.table))) {
    const positions = boxes.filter((box) => box.dataset.table === name).map((box) => box.dataset.position);
    saved += await save({ act, positions, table: name });
    byId("done").textContent = `Saved: ${act} ${counted(saved, "record")}. It takes effect with the next batch.`;
  }
}

byId("decide").addEventListener("submit", (event) => {
  event.preventDefault();
  decide(event.submitter.value).catch(complain);
});
byId("filters").addEventListener("change", () => { offset = 0; refresh(); });
refresh();
follow(refresh);
