// One record by its key: every verdict that it got, and where it came from.
import { api, byId, clock, count, counted, fill, follow, inZone, origin, refreshing, table } from "/static/tapeline.js";

const LIMIT = 200;
const WORDS = {
  kept: "counts", applied: "deletes its key", superseded: "replaced by a newer version", duplicate: "repeats a record",
  quarantined: "in quarantine", dropped: "left out", dismissed: "dismissed",
};
let asked = new URLSearchParams(location.search).get("key") ?? "";

const refresh = refreshing(async () => {
  byId("found").hidden = !asked;
  if (!asked) return;
  const found = await api("records", { key: asked, limit: LIMIT });
  byId("found").hidden = !found.records.length;
  byId("said").textContent = found.records.length
    ? `${counted(found.records.length, "verdict")}${found.records.length === LIMIT ? " (the first ones)" : ""} on records with the key ${asked}.`
    : `No record with the key ${asked} has been published.`;
  const columns = [
    { title: inZone("published"), class: "line", cell: (row) => clock(row.at, true) },
    { title: "batch", number: true, cell: (row) => count(row.batch) },
    { title: "key", class: "line", cell: (row) => row.key ?? "unreadable" },
    { title: "table", class: "line", cell: (row) => row.table },
    { title: "verdict", class: "line", cell: (row) => (row.taken_back ? `no longer: ${row.verdict}` : `${row.verdict}: ${WORDS[row.verdict] ?? ""}`) },
    { title: "cause", class: "line", cell: (row) => (row.cause ?? "").replaceAll("_", " ") },
    { title: "reasons", cell: (row) => [...row.reasons, ...row.details].join("; ") },
    { title: "from", class: "record", cell: origin },
    { title: "position", class: "record line", cell: (row) => row.position },
  ];
  fill(byId("found"), table(`Key ${asked}`, columns, found.records));
});

byId("key").value = asked;
byId("filters").addEventListener("submit", (event) => {
  event.preventDefault();
  asked = byId("key").value.trim();
  history.replaceState(null, "", `?${new URLSearchParams({ key: asked })}`);
  refresh();
});
refresh();
follow(refresh);
