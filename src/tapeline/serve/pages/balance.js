// The trial balance: record counts from tape to journal, and every check.
import { amount, api, byId, clock, count, counted, decimals, element, empty, fill, follow, inZone, readable, refreshing, table, UNIT, zoned } from "/static/tapeline.js";

const refresh = refreshing(async () => {
  const [pipeline, found] = await Promise.all([api("pipeline"), api("audit")]);
  const banner = byId("banner");
  if (!found.batch) {
    banner.textContent = "Nothing to check: no batch has been published yet.";
    return fill(byId("checks"), empty("Start the pipeline with ", element("code", {}, "tapeline run"), "."));
  }
  banner.dataset.state = found.balances ? "good" : "bad";
  banner.textContent = found.balances
    ? `✓ The books balance: batch ${count(found.batch)}, published ${zoned(found.at)}.`
    : `✗ The books do not balance. First wrong batch: ${found.checks.find((one) => !one.balances)?.batch ?? "unknown"}. Stop the pipeline and run tapeline audit --full.`;
  const wrong = new Set(found.checks.filter((one) => !one.balances).map((one) => one.what.split(":")[0]));
  fill(byId("figures"), (await Promise.all(pipeline.summaries.map(figures))).flat());
  fill(byId("flows"), pipeline.sources.map((source) => flow(pipeline, found, source, wrong)));
  const columns = [
    { title: "result", class: "line", cell: (row) => element("span", { class: row.balances ? "good" : "bad" }, row.balances ? "✓ ok" : "✗ error") },
    { title: "check", cell: (row) => row.what },
    { title: "expected", number: true, cell: (row) => exactly(row.expected) },
    { title: "found", number: true, cell: (row) => exactly(row.found) },
    { title: "first wrong batch", number: true, cell: (row) => row.batch ?? "" },
  ];
  fill(byId("checks"), [table(counted(found.checks.length, "check"), columns, found.checks), ...gaps(found.gaps), ...unproved(found.unproved)]);
});

const exactly = (value) => (/^-?\d+(\.\d+)?$/.test(value) ? readable(value, decimals(value)) : value);

function gaps(found) {
  if (!found.length) return [];
  const columns = [
    { title: "partition", cell: (row) => `${row.topic}/${row.partition}` },
    { title: "from", number: true, cell: (row) => row.from },
    { title: "to", number: true, cell: (row) => row.to ?? "unknown" },
    { title: "reason", cell: (row) => `${row.kind}: ${row.words}` },
    { title: inZone("found"), class: "line", cell: (row) => clock(row.at, true) },
    { title: "accepted by", cell: (row) => row.accepted_by },
  ];
  return [table("Accepted gaps: messages that the Kafka cluster lost", columns, found)];
}

function unproved(found) {
  if (!found.length) return [];
  const columns = [
    { title: "source", cell: (row) => row.source },
    { title: "batches on the tape", number: true, cell: (row) => count(row.batches) },
    { title: "rows dropped by the watermark", number: true, cell: (row) => count(row.dropped_by_watermark) },
    { title: "what that means", cell: (row) => row.words },
  ];
  return [table("Structured Streaming queries: counted, not proved", columns, found)];
}

function flow(pipeline, found, source, wrong) {
  const steps = [box(`tape ${source}`, [["records read", count(found.tapes[source])]], wrong.has(source))];
  let reads = [source];
  const tables = pipeline.tables.filter((one) => {
    if (!reads.includes(one.reads)) return false;
    reads = [...reads, one.name];
    return true;
  });
  for (const one of tables) {
    const verdicts = found.totals[one.name]?.verdicts ?? {};
    steps.push(box(`table ${one.name}`, Object.entries(verdicts).map(([word, number]) => [word, count(number)]), wrong.has(one.name)));
  }
  for (const one of pipeline.summaries.filter((summary) => reads.includes(summary.reads))) {
    const facts = found.totals[one.name] ?? {};
    const counts = [["entries", facts.entries], ["records counted", facts.counted], ["left out by its filter", facts.left_out]];
    steps.push(box(`journal ${one.name}`, counts.filter(([, value], place) => !place || value).map(([name, value]) => [name, count(value)]), wrong.has(one.name), "journal"));
  }
  return element("ol", { class: "flow", "aria-label": `Records from ${source}` }, steps);
}

// What a summary adds up to since the first batch, apart for each currency or other unit.
async function figures(of) {
  const { columns, rows } = await api(`read/${of.name}`, { limit: 1 });
  if (!rows.length) return [];
  const unit = of.key.find((name) => UNIT.test(name));
  const sums = columns.map((one) => one.name).filter((name) => !of.key.includes(name) && !name.startsWith("_"));
  const found = await api(`read/${of.name}`, { group: unit ?? "_overflow", sum: [...sums, "_entries"], limit: 1000 });
  const shown = [
    ...(unit ? [{ title: unit.replaceAll("_", " "), cell: (row) => row[unit] }] : []),
    ...sums.map((name) => ({ title: name.replaceAll("_", " "), number: true, cell: (row) => amount(row[name], row[unit]) })),
    { title: "entries", number: true, cell: (row) => count(row._entries) },
  ];
  const listed = table(`${of.name}, since the first batch`, shown, found.rows);
  return [element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Figures of ${of.name}`, "data-summary": of.name }, listed)];
}

function box(title, facts, bad, kind = "") {
  return element(
    "li", { class: `${bad ? "bad" : "good-box"} ${kind}` },
    element("strong", {}, `${bad ? "✗" : "✓"} ${title}`),
    element("dl", {}, facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
  );
}

refresh();
follow(refresh);
