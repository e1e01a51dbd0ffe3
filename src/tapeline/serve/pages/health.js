// Health: how far each source is behind, how long batches take, what does not work.
import { api, byId, clock, colour, count, draw, element, empty, fill, follow, readable, refreshing, table } from "/static/tapeline.js";

const refresh = refreshing(async () => {
  const { status, pulls, recent, feed } = await api("health");
  const banner = byId("banner");
  const problems = [status.failure, feed.problem, ...Object.values(status.problems ?? {})].filter(Boolean);
  banner.dataset.state = problems.length ? "bad" : status.running ? "good" : "";
  banner.textContent = problems.length ? `✗ ${problems.join("; ")}` : status.paused ? `The flow is paused by ${status.paused.who}, since ${clock(status.paused.at, true)}. ${status.paused.note}` : status.running ? `✓ The pipeline runs, since ${clock(status.started_at, true)}.` : "The pipeline does not run. Start it with tapeline run.";
  showSources(status.sources ?? {});
  showPulls(pulls);
  showIncidents(status.incidents ?? []);
  const figure = (words, value) => element("div", {}, element("dt", {}, words), element("dd", {}, value));
  fill(
    byId("facts"),
    figure("batch", count(status.batch)), figure("batch time, median", `${count(status.batch_milliseconds)} ms`),
    figure("rate", `${readable(status.records_per_second ?? 0, 0)} records/s`), figure("missed ticks", count(status.overruns)),
    figure("starts", count(status.starts)), figure("of them after a kill", count(status.kills)),
    figure("parts tried again", count(status.retries)), figure("pages open", count(feed.clients)),
  );
  const x = recent.map((one) => one.at);
  const line = (name, hue) => [{ type: "scatter", mode: recent.length < 3 ? "markers" : "lines", x, y: recent.map((one) => one[name]), line: { color: colour(hue), width: 2 } }];
  const small = { margin: { l: 45, r: 5, t: 5, b: 25 }, showlegend: false };
  await draw(byId("times"), line("milliseconds", "buy"), { ...small, yaxis: { ticksuffix: " ms", rangemode: "tozero" } });
  await draw(byId("records"), line("records", "sell"), { ...small, yaxis: { rangemode: "tozero" } });
});

function showSources(sources) {
  const rows = Object.entries(sources).map(([name, facts]) => ({ name, ...facts }));
  const columns = [
    { title: "source", cell: (row) => row.name },
    { title: "behind, records", number: true, cell: (row) => count(row.lag_records) },
    { title: "behind, seconds", number: true, cell: (row) => readable(row.lag_seconds, 1) },
    { title: "caught up in", number: true, cell: (row) => (row.lag_records ? (row.seconds_to_catch_up === null ? "unknown" : `${readable(row.seconds_to_catch_up, 0)} s`) : "caught up") },
    { title: "files in the drop folder", number: true, cell: (row) => count(row.drop_files) },
    { title: "tape batch", number: true, cell: (row) => count(row.position) },
    { title: "problem", cell: (row) => row.problem ?? "" },
  ];
  fill(byId("sources"), rows.length ? table("Every source, from its drop folder to the books", columns, rows) : empty("No flow has run here yet."));
}

function showPulls(pulls) {
  const place = byId("pulls");
  place.hidden = !pulls.length;
  const columns = [
    { title: "pull", cell: (row) => row.pull },
    { title: "records", number: true, cell: (row) => count(row.records_ever) },
    { title: "stands at", class: "record", cell: (row) => row.position ?? "the beginning" },
    { title: "last asked", cell: (row) => (row.asked_at ? clock(row.asked_at, true) : "never") },
    { title: "next", cell: (row) => (row.next_at ? clock(row.next_at, true) : "given up") },
    { title: "failures", number: true, cell: (row) => count(row.failures) },
    { title: "problem", cell: (row) => row.incident?.error ?? "" },
  ];
  if (pulls.length) fill(place, table("Every system that tapeline pull asks", columns, pulls));
}

function showIncidents(incidents) {
  if (!incidents.length) return fill(byId("incidents"), empty("Everything works."));
  const names = Object.keys(incidents[0]);
  fill(byId("incidents"), table("Each is told once, and again when it is over", names.map((name) => ({ title: name, cell: (row) => String(row[name] ?? "") })), incidents));
}

document.addEventListener("theme", refresh);
refresh();
follow(refresh);
setInterval(refresh, 2000);
