// Runs: the list, and one run with curves that go on while it does.

const CHARTS = [
  { title: "Reward and success", wide: true, height: 240, domain: [0, 1], smooth: true, lines: { reward_mean: "mean training reward" }, points: true },
  { title: "Entropy", smooth: true, lines: { entropy: "entropy" } },
  { title: "KL to the start", smooth: true, lines: { kl: "KL" } },
  { title: "Gradient norm", smooth: true, lines: { grad_norm: "gradient norm" } },
  { title: "Length of completions, tokens", lines: { completion_mean: "mean", completion_max: "longest" } },
  { title: "Behaviour, share of episodes", domain: [0, 1], lines: { tool_call_rate: "calls a tool", parse_ok_rate: "calls parsed", finish_rate: "finished" } },
  { title: "Groups without signal", domain: [0, 1], smooth: true, lines: { frac_zero_variance: "all alike", frac_groups_all_one: "all right", frac_groups_all_zero: "all wrong" } },
  { title: "Trouble, share of episodes", domain: [0, 1], lines: { truncated_rate: "truncated", env_error_rate: "environment failed" } },
  { title: "Clipped, share of tokens", lines: { clip_low: "below", clip_high: "above" } },
  { title: "Learning rate", lines: { learning_rate: "learning rate" } },
  { title: "Reward with and without experience", domain: [0, 1], smooth: true, lines: { reward_guided: "with", reward_unguided: "without" } },
  { title: "Seconds of a step", lines: { "seconds.generate": "generate", "seconds.environment": "environment", "seconds.logprob": "log probabilities", "seconds.update": "update", "seconds.other": "other" } },
];

function success(found) {
  return found ? `${number(found.mean)} ${interval(found.ci95)}` : "–";
}

// Rows of a list at first, and at most.
const PAGE = 40;
const MOST = 200;

async function runsView() {
  const list = el("div", { class: "stack" });
  let limit = PAGE;

  async function fillList() {
    const [now, page] = await Promise.all([asking.ask("overview"), asking.ask(`runs?limit=${limit}`)]);
    const waiting = now.waiting.map((id) => el("a", { href: `#/patches/${id}` }, id));
    refresh(
      list, JSON.stringify([now, page]),
      () => [
        now.waiting.length ? el("p", { class: "alert" }, `${now.waiting.length === 1 ? "A patch waits" : `${now.waiting.length} patches wait`} for your decision: `, ...waiting.flatMap((one, at) => (at ? [", ", one] : [one]))) : null,
        page.runs.length ? el("ul", { class: "rows", "data-list": true }, page.runs.map(runRow)) : none('There are no runs yet. Start one with: mcp-evo train "…"'),
        more(page, page.runs.length, "runs", () => { limit = Math.min(MOST, limit + PAGE); return fillList(); }),
      ],
    );
  }

  await fillList();
  return { title: "Runs", node: el("div", {}, head(null, "Runs"), list), poll: fillList, every: 4000 };
}

function runRow(run) {
  const steps = run.planned_steps ? `step ${run.step} of ${run.planned_steps}` : `step ${run.step}`;
  return el(
    "li", {},
    el(
      "a", { class: "row", href: `#/runs/${run.run_id}`, "data-key": run.run_id },
      el("span", { class: "name" }, run.run_id, badge(run.state), run.verdict && run.verdict !== "no_goal" ? badge(run.verdict) : null),
      el("span", { class: "about" }, run.request || [run.model, run.env].filter(Boolean).join(", ")),
      el(
        "span", { class: "side" },
        sparkline(run.spark),
        el("span", { class: "figure" }, el("span", {}, run.after ? `${number(run.before && run.before.mean, 2)} → ${number(run.after.mean, 2)}` : number(run.reward, 2)), el("span", { class: "small" }, run.after ? "test success" : "reward")),
        el("span", { class: "figure" }, el("span", {}, duration(run.final ? run.seconds : Date.now() / 1000 - run.created_at)), el("span", { class: "small" }, steps)),
      ),
    ),
  );
}

async function runView(id) {
  const live = el("p", { class: "soft", role: "status" });
  const badges = el("span", {});
  const alerts = el("div", { class: "alerts" });
  const charts = CHARTS.map((one) => ({ plan: one, chart: curve(one.title, { ...one, from: one.points ? 0 : undefined }) }));
  const drawn = el("div", { class: "charts" }, charts.map((one) => one.chart.node));
  const rest = el("div", { class: "stack" });
  const seen = { steps: [], series: {}, last: 0, final: null };

  function take(news) {
    for (const name of new Set([...Object.keys(seen.series), ...Object.keys(news.series)])) {
      const before = seen.series[name] || seen.steps.map(() => null);
      seen.series[name] = [...before, ...(news.series[name] || news.steps.map(() => null))];
    }
    seen.steps = [...seen.steps, ...news.steps];
    seen.last = news.last;
  }

  function evaluations(news) {
    const at = { before: 0, after: news.last };
    return news.evals
      .map((one) => ({ ...one, step: known(one.step) ? one.step : at[one.name] }))
      .filter((one) => known(one.step) && known(one.mean));
  }

  function draw(news) {
    const points = evaluations(news);
    for (const { plan, chart } of charts) {
      const lines = Object.entries(plan.lines).filter(([name]) => seen.series[name]).map(([name, label]) => ({ name: label, values: seen.series[name] }));
      chart.node.hidden = lines.length === 0 && !(plan.points && points.length);
      if (!chart.node.hidden) chart.update({ steps: seen.steps, lines, points: plan.points ? points : [], flags: plan.points ? news.alerts : [] });
    }
    replace(badges, badge(news.state), " ", news.verdict ? badge(news.verdict) : null);
    const left = known(news.seconds_left) ? `, at most ${duration(news.seconds_left)} left` : "";
    live.textContent = news.final
      ? `${news.last} steps${news.stop_reason ? `, ended by ${words(news.stop_reason)}` : ""}.`
      : `Step ${news.last}${news.planned_steps ? ` of ${news.planned_steps}` : ""}${left}. ${news.stop_asked ? "It was asked to stop." : "Curves go on by themselves."}`;
    refresh(alerts, JSON.stringify(news.alerts), () => alertNotes(news.alerts));
  }

  async function more() {
    const news = await asking.ask(`runs/${id}/steps?since=${seen.last}`);
    if (news.last < seen.last) Object.assign(seen, { steps: [], series: {}, last: 0 });
    else take(news);
    draw(news);
    if (news.final !== seen.final) {
      seen.final = news.final;
      replace(rest, ...runFacts(await asking.ask(`runs/${id}`)));
    }
  }

  await more();
  return {
    title: id,
    node: el("div", { class: "stack" }, head({ to: "#/runs", name: "Runs" }, id, [badges]), live, alerts, drawn, rest),
    get poll() { return seen.final ? null : more; },
    every: 2000,
  };
}

// Alarms at once, notes when asked for.
function alertNotes(alerts) {
  const notes = alerts.filter((one) => one.severity === "info");
  const count = `${notes.length} ${notes.length === 1 ? "note" : "notes"} of the detectors`;
  return [
    ...alerts.filter((one) => one.severity !== "info").map(alertNote),
    notes.length ? el("details", {}, el("summary", {}, count), el("div", { class: "alerts" }, notes.map(alertNote))) : null,
  ];
}

const SEVERITIES = { critical: ["critical", "bad"], warn: ["warning", "warn"], info: ["note", ""] };

function alertNote(one) {
  return el(
    "div", { class: `alert ${one.severity}` },
    el("p", {}, badge(...(SEVERITIES[one.severity] || [one.severity, "warn"])), " ", el("strong", {}, words(one.kind).replace(":", ", ")), ` at step ${one.step}${one.times > 1 ? `, ${one.times} times` : ""}: ${one.say}`),
    el("p", { class: "soft small" }, `${sentence(one.cause)} ${sentence(one.advice)}`),
  );
}

function runFacts(run) {
  const evals = ["before", "validation", "after"].filter((name) => run.evals[name]);
  return [
    run.failure ? el("div", { class: "alert critical" }, el("p", {}, el("strong", {}, words(run.failure.kind)), `: ${run.failure.message}`), run.failure.log_tail && run.failure.log_tail.length ? el("details", {}, el("summary", {}, "Last lines of its log"), el("pre", { class: "prose mono small" }, run.failure.log_tail.join("\n"))) : null) : null,
    run.findings.length ? card("What held it back", el("div", { class: "alerts" }, run.findings.map(findingNote)), run.advice.length ? el("div", {}, el("h3", {}, "What to try"), el("ul", {}, run.advice.map((one) => el("li", {}, one)))) : null) : null,
    el(
      "div", { class: "two" },
      card(
        "Run",
        run.request ? el("p", { class: "prose" }, run.request) : null,
        facts(
          ...evals.map((name) => fact(name === run.evals[name].split ? name : `${name}, ${run.evals[name].split}`, success(run.evals[name]), el("span", { class: "soft" }, ` n=${run.evals[name].n}`))),
          fact("started", moment(run.started_at)), fact("took", duration(run.seconds)), fact("parameters", whole(run.parameters)), fact("device", run.device || "–"),
          run.round ? fact("round", el("a", { href: `#/rounds/${run.round}` }, run.round)) : null,
          run.parent_run ? fact("goes on from", el("a", { href: `#/runs/${run.parent_run}` }, run.parent_run)) : null,
          run.profile ? fact("profile", run.profile) : null,
        ),
        el("p", {}, run.episodes ? el("a", { href: `#/runs/${run.run_id}/episodes` }, `Episodes of ${run.episodes} steps`) : el("span", { class: "soft" }, "No episodes were kept.")),
      ),
      card("Skills and packages", facts(...Object.entries(run.skill_versions).map(([name, version]) => fact(name, el("a", { href: `#/skills/${name}` }, version))), ...Object.entries(run.packages).map(([name, version]) => fact(name, version)))),
    ),
    settings(run),
  ];
}

function findingNote(one) {
  const lever = one.lever ? `Lever: ${one.lever.skill}, ${one.lever.key} ${one.lever.direction}.` : "";
  return el(
    "div", { class: `alert ${one.kind === "healthy" ? "good" : "info"}` },
    el("p", {}, el("strong", {}, words(one.kind)), ` (confidence ${number(one.confidence, 2)}): ${one.what}`),
    lever || one.blocked ? el("p", { class: "soft small" }, [lever, one.blocked].filter(Boolean).join(" ")) : null,
  );
}

function settings(run) {
  const chosen = run.config.filter((one) => one.source !== "default");
  const rows = (list) => list.map((one) => [el("code", {}, one.field), el("span", { class: "mono" }, plain(one.value)), one.source, one.detail || ""]);
  const columns = [{ name: "setting" }, { name: "value" }, { name: "from" }, { name: "detail" }];
  return card(
    "Settings, and who chose them",
    chosen.length ? table(columns, rows(chosen), "Settings that somebody chose") : none("All settings are defaults."),
    el("details", { class: "more" }, el("summary", {}, `${run.config.length - chosen.length} defaults`), table(columns, rows(run.config.filter((one) => one.source === "default")), "Settings left at their default")),
  );
}
