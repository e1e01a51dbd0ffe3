// Health: whether the pipeline runs, the lag of each source, batch times and current problems.
import { api, byId, clock, colour, count, counted, draw, element, empty, fill, follow, inZone, readable, refreshing, table, zone, zoned } from "/static/tapeline.js";

const refresh = refreshing(async () => {
  const { status, pulls, references, recent, feed, alerts, rejected, tick_words: tick } = await api("health");
  const banner = byId("banner");
  const { state, words } = verdict(status, feed, alerts);
  banner.dataset.state = state;
  // Only when it changes: a screen reader reads the banner aloud.
  const said = element("p", {}, words);
  if (banner.textContent !== said.textContent) fill(banner, ...said.childNodes);
  showSources(status.sources ?? {}, status);
  showPulls(pulls);
  showReferences(references);
  showAlerts(alerts);
  showIncidents(status.incidents ?? [], state, status.running);
  const figure = (words, value) => element("div", {}, element("dt", {}, words), element("dd", {}, value));
  fill(
    byId("facts"),
    figure("last batch", count(recent.at(-1)?.batch ?? status.batch)), figure("last update", zoned(recent.at(-1)?.at ?? status.published_at) || "never"),
    figure("median batch time", status.batch_milliseconds == null ? "–" : `${count(status.batch_milliseconds)} ms`),
    figure("throughput", status.records_per_second == null ? "–" : `${readable(status.records_per_second, 0)} records/s`), figure("missed runs", count(status.overruns)),
    ...(tick ? [figure("a tick uses", tick)] : []), figure("rejected files", element("a", { href: "/deliveries" }, count(rejected))),
    figure("starts", count(status.starts)), figure("restarts after a crash", count(status.kills)),
    figure("retries", count(status.retries)), figure("open pages", count(feed.clients)),
  );
  const x = recent.map((one) => one.at);
  const line = (name, hue) => [{ type: "scatter", mode: recent.length < 3 ? "markers" : "lines", x, y: recent.map((one) => one[name]), line: { color: colour(hue), width: 2 } }];
  const small = { margin: { l: 45, r: 5, t: 5, b: 40 }, showlegend: false, xaxis: { title: { text: zone() }, tickangle: 0, nticks: 4 } };
  await draw(byId("times"), line("milliseconds", "buy"), { ...small, yaxis: { ticksuffix: " ms", rangemode: "tozero" } });
  await draw(byId("records"), line("records", "sell"), { ...small, yaxis: { rangemode: "tozero" } });
});

// The banner. Not running is an error: nothing is published until somebody starts the pipeline.
function verdict(status, feed, alerts) {
  const problems = [status.stuck ? stuckWords(status.stuck) : status.failure, ...Object.values(status.problems ?? {}), ...(feed.problem ? [`Cannot read the books: ${feed.problem}`] : [])].filter(Boolean);
  const start = ["Start it with ", element("code", {}, "tapeline run"), "."];
  if (!status.running) return { state: "bad", words: ["✗ Not running. ", ...start, ...(problems.length ? [` Last problem: ${problems.join("; ")}`] : [])] };
  if (problems.length) return { state: "bad", words: [`✗ ${problems.join("; ")}`] };
  if (status.incidents?.length) return { state: "bad", words: [`✗ Running with ${counted(status.incidents.length, "problem")}, listed below.`] };
  if (alerts.length) return { state: "bad", words: [`✗ Running with ${counted(alerts.length, "alert")}, listed below.`] };
  if (status.paused) return { state: "", words: [`Paused by ${status.paused.who} since ${zoned(status.paused.at)}. ${status.paused.note ?? ""} Resume with `, element("code", {}, "tapeline resume"), "."] };
  return { state: "good", words: [`✓ Running since ${zoned(status.started_at)}.`] };
}

function stuckWords(stuck) {
  const range = ([source, [first, last]]) => `${source} tape batch${first === last ? ` ${first}` : `es ${first} to ${last}`}`;
  const where = Object.entries(stuck.tapes).map(range).join(", ") || "operator actions";
  const times = stuck.attempts === 1 ? "once" : `${count(stuck.attempts)} times`;
  return `Publishing has failed since ${zoned(stuck.since)}: batch ${stuck.batch} (${where}) failed ${times}. Last error: ${stuck.error}`;
}

function showSources(sources, status) {
  const rows = Object.entries(sources).map(([name, facts]) => ({ name, ...facts }));
  const columns = [
    { title: "source", cell: (row) => row.name },
    { title: "lag (records)", number: true, cell: (row) => count(row.lag_records) },
    { title: "lag (seconds)", number: true, cell: (row) => readable(row.lag_seconds, 1) },
    { title: "time to catch up", number: true, cell: (row) => timeLeft(row, status) },
    { title: "files waiting", number: true, cell: (row) => count(row.drop_files) },
    { title: "tape position", number: true, cell: (row) => count(row.position) },
    { title: "problem", cell: (row) => row.problem ?? "" },
  ];
  fill(byId("sources"), rows.length ? table(status.running ? "Lag of each source, from its arrival to the books" : `Lag when the pipeline last ran, ${zoned(status.at)}`, columns, rows) : empty("No status yet. It appears when the pipeline runs."));
}

function timeLeft(row, status) {
  if (!row.lag_records) return "caught up";
  if (!status.running) return "not running";
  return row.seconds_to_catch_up === null ? "unknown" : `${readable(row.seconds_to_catch_up, 0)} s`;
}

function showPulls(pulls) {
  const place = byId("pulls");
  place.hidden = !pulls.length;
  const columns = [
    { title: "pull", cell: (row) => row.pull },
    { title: "records", number: true, cell: (row) => count(row.records_ever) },
    { title: "position", class: "record", cell: (row) => row.position ?? "start" },
    { title: inZone("last request"), class: "line", cell: (row) => (row.asked_at ? clock(row.asked_at, true) : "never") },
    { title: inZone("next request"), class: "line", cell: (row) => (row.next_at ? clock(row.next_at, true) : "stopped retrying") },
    { title: "failures", number: true, cell: (row) => count(row.failures) },
    { title: "problem", cell: (row) => row.incident?.error ?? "" },
  ];
  if (pulls.length) fill(place, table("Systems that tapeline pull reads from", columns, pulls));
}

function showAlerts(alerts) {
  const columns = [
    { title: "alert", class: "line", cell: (row) => row.alert },
    { title: "severity", class: "line", cell: (row) => row.severity },
    { title: inZone("since"), class: "line", cell: (row) => clock(row.raised_at, true) },
    { title: "about", class: "wide", cell: (row) => row.about },
  ];
  fill(byId("alerts"), alerts.length ? table("Each closes when its cause is gone", columns, alerts) : empty("No alerts."));
}

function showReferences(references) {
  const place = byId("references");
  place.hidden = !references.length;
  const columns = [
    { title: "reference", cell: (row) => row.reference },
    { title: "read from", class: "record", cell: (row) => row.reads },
    { title: "rows", number: true, cell: (row) => count(row.rows) },
    { title: "age (seconds)", number: true, cell: (row) => (row.age_seconds == null ? "never read" : readable(row.age_seconds, 0)) },
    { title: "read again after (seconds)", number: true, cell: (row) => readable(row.every_seconds, 0) },
    { title: "failures", number: true, cell: (row) => count(row.failures) },
    { title: "problem", cell: (row) => row.error ?? "" },
  ];
  if (references.length) fill(place, table("References from other systems; batches use the last version", columns, references));
}

function showIncidents(incidents, state, running) {
  if (!incidents.length) return fill(byId("incidents"), empty(!running ? "The pipeline is not running." : state === "bad" ? "See the message at the top of this page." : "No problems."));
  const columns = [
    { title: "part", cell: (row) => row.part },
    { title: inZone("since"), class: "line", cell: (row) => clock(row.since, true) },
    { title: "attempts", number: true, cell: (row) => count(row.attempts) },
    { title: "state", class: "line", cell: (row) => (row.given_up ? "stopped retrying" : "retrying") },
    { title: "error", cell: (row) => row.error },
  ];
  fill(byId("incidents"), table("A notification is sent when a problem starts and when it ends", columns, incidents));
}

document.addEventListener("theme", refresh);
refresh();
follow(refresh);
setInterval(refresh, 2000);
