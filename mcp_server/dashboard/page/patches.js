// Patches: the list, one with everything a person needs to decide, and the decision.

const TYPED = 6;

async function patchesView() {
  const list = el("div", {});
  let limit = PAGE;

  async function fillList() {
    const page = await asking.ask(`patches?limit=${limit}`);
    refresh(list, JSON.stringify(page), () => [
      page.patches.length ? el("ul", { class: "rows", "data-list": true }, page.patches.map(patchRow)) : none("There are no patches yet. A finding of an analysed run becomes one."),
      more(page, page.patches.length, "patches", () => { limit = Math.min(MOST, limit + PAGE); return fillList(); }),
    ]);
  }

  await fillList();
  return { title: "Patches", node: el("div", {}, head(null, "Patches", [], "Small changes of the skills that training works by. One counts only after a paired trial and a person's approval."), list), poll: fillList, every: 5000 };
}

function patchRow(one) {
  return el(
    "li", {},
    el(
      "a", { class: "row", href: `#/patches/${one.patch_id}`, "data-key": one.patch_id },
      el("span", { class: "name" }, one.patch_id, badge(one.stage), one.waits ? badge("waits for you", "warn") : null),
      el("span", { class: "about" }, one.description),
      el(
        "span", { class: "side" },
        el("span", { class: "figure" }, el("span", {}, known(one.effect) ? `${signed(one.effect)} ${interval(one.ci95, 2, signed)}` : one.kind === "prose" ? "not measured" : "not tried"), el("span", { class: "small" }, one.verdict ? `${one.verdict}, ${one.pairs} pairs` : one.skill)),
      ),
    ),
  );
}

async function patchView(id) {
  const body = el("div", { class: "stack" });
  const state = { text: "" };

  async function fillPage(force) {
    const one = await asking.ask(`patches/${id}`);
    const text = JSON.stringify(one);
    if (text === state.text && !force) return;
    const typing = body.contains(document.activeElement) && ["INPUT", "TEXTAREA"].includes(document.activeElement.tagName);
    if (state.text && typing && !force) {  // the person is deciding: what changed is said when they send it
      return;
    }
    state.text = text;
    replace(body, ...patchParts(one, () => fillPage(true)));
  }

  await fillPage(true);
  return { title: id, node: body, poll: () => fillPage(false), every: 4000 };
}

function patchParts(one, again) {
  return [
    head({ to: "#/patches", name: "Patches" }, one.patch_id, [badge(one.stage), one.verdict ? badge(one.verdict) : null].filter(Boolean), one.description),
    facts(
      fact("skill", el("a", { href: `#/skills/${one.skill}` }, one.skill)), fact("section", one.section), fact("holds where", condition(one.scope)),
      one.profile ? fact("profile", one.profile) : null, one.round ? fact("round", el("a", { href: `#/rounds/${one.round}` }, one.round)) : null, fact("proposed", moment(one.created_at), el("span", { class: "soft" }, ` by ${one.source}`)),
    ),
    card(
      "What changes",
      one.changes.length ? table([{ name: "value" }, { name: "where" }, { name: "now" }, { name: "with the patch" }], one.changes.map((change) => [el("code", {}, change.key), condition(change.when), plain(change.before), el("strong", {}, plain(change.after))]), "Values that change") : null,
      diff(one.diff, "What changes in the compiled skill"),
      one.diff_cut ? el("p", { class: "small soft" }, "The diff is longer than what is shown.") : null,
      one.based_on_other ? el("p", { class: "alert" }, "The skill has changed since the patch was proposed. This diff is against the skill as it is now; the trial was run on the skill as it was.") : null,
    ),
    one.finding ? evidence(one.finding, one.expected) : null,
    ...one.trials.slice().reverse().map(trial),
    decisionPart(one, again),
    pastOf(one),
  ];
}

function evidence(finding, expected) {
  const metrics = (finding.metrics || []).map((metric) => [
    words(metric.name), metric.split || "", brief(metric.value), known(metric.standard_error) ? `± ${brief(metric.standard_error)}` : "", known(metric.n) ? String(metric.n) : "",
  ]);
  const runs = [...new Set((finding.evidence || []).map((part) => part.run_id).filter(Boolean))];
  return card(
    "Why",
    el("p", {}, el("strong", {}, words(finding.kind)), ` (confidence ${number(finding.confidence, 2)})`),
    el("p", {}, finding.what),
    runs.length ? el("p", { class: "small" }, "Seen in ", ...runs.flatMap((run, at) => [at ? ", " : "", el("a", { href: `#/runs/${run}` }, run)])) : null,
    expected ? el("p", { class: "small soft" }, `Expected: ${words(expected.metric)} on ${expected.split} ${signed(expected.change, 2)}.`) : null,
    metrics.length ? el("details", {}, el("summary", {}, `${metrics.length} numbers it rests on`), table([{ name: "quantity" }, { name: "split" }, { name: "value", number: true }, { name: "error", number: true }, { name: "n", number: true }], metrics, "Numbers of the finding")) : null,
  );
}

function trial(one) {
  const sum = one.summary;
  const state = one.verdict ? badge(one.verdict) : badge(one.running ? "running" : "interrupted", one.running ? "live" : "warn");
  return card(
    null,
    el("div", { class: "title" }, el("h2", {}, one.kind === "replay" ? "Trial on recorded runs" : "Paired trial"), state, el("span", { class: "soft small" }, `${one.trial_id}, plan ${one.plan}, ${one.pairs.length} of at most ${one.max_pairs} pairs`)),
    one.say ? el("p", {}, sentence(one.say)) : null,
    one.blocked_by.length ? el("p", { class: "alert" }, `What forbade “better”: ${one.blocked_by.join("; ")}`) : null,
    el(
      "div", { class: "two" },
      one.pairs.length ? pairPlot(one.pairs) : none("No pairs yet."),
      sum ? el(
        "div", { class: "stack" },
        el("div", {}, el("h3", {}, "Effect on test success, with its interval"), effectPlot(sum.effect, sum.interval, `effect ${signed(sum.effect)} ${interval(sum.interval, 3, signed)}`), el("p", { class: "small" }, `${signed(sum.effect)} ${interval(sum.interval, 3, signed)}`)),
        facts(fact("without", number(sum.base_mean)), fact("with", number(sum.patched_mean)), fact("collapsed", `${sum.collapses_base.count} → ${sum.collapses_patched.count} of ${sum.pairs}`)),
        table([{ name: "scenario" }, { name: "pairs", number: true }, { name: "difference", number: true }], sum.scenarios.map((part) => [part.scenario, part.pairs, el("span", {}, signed(part.mean), part.harmed ? badge("harmed", "bad") : null)]), "Scenarios"),
      ) : null,
    ),
    one.next_step ? el("p", { class: "small soft" }, `Next: ${sentence(one.next_step)}`) : null,
  );
}

function decisionPart(one, again) {
  if (!one.digests && !one.may_reject) return null;
  const said = el("p", { class: "said", role: "alert" });
  const typed = el("input", { id: "typed", class: "code", type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false", maxlength: String(TYPED), "aria-describedby": "digest" });
  const reason = el("input", { id: "reason", type: "text", maxlength: "500", autocomplete: "off" });
  const terminal = [el("p", { class: "small soft" }, "In a terminal of your own:"), el("code", { class: "command" }, one.command)];
  if (!deciding.allowed) {
    return el("section", { class: "card" }, el("h2", {}, "Decide"), el("p", {}, `${deciding.why_not}.`), ...terminal);
  }

  async function send(decision) {
    const buttons = [...form.querySelectorAll("button")];
    buttons.forEach((button) => { button.disabled = true; });
    said.className = "said";
    said.textContent = decision === "approve" ? "Approving…" : "Rejecting…";
    try {
      const done = await asking.decide(one.patch_id, { decision, mark: one.mark, typed: typed.value.trim(), reason: reason.value.trim() });
      notice(done.stage === "active" ? `${one.patch_id} is in force as ${done.version}.` : `${one.patch_id} is ${done.stage}.`);
      await again();
      navigation("patches");
      heading();
    } catch (error) {
      said.className = "said bad";
      said.textContent = error.message;
      buttons.forEach((button) => { button.disabled = false; });
    }
  }

  const form = el(
    "form", { onsubmit: (event) => { event.preventDefault(); if (one.digests) send("approve"); } },
    one.digests ? el("p", { class: "digest", id: "digest" }, el("span", { class: "soft" }, "digest of the outcome "), el("b", {}, one.digests.result.slice(0, TYPED)), one.digests.result.slice(TYPED)) : el("p", { class: "soft" }, `It cannot be approved now: ${one.why_not}.`),
    one.digests ? el("label", { for: "typed" }, `Type its first ${TYPED} characters to approve`, typed) : null,
    el("label", { for: "reason" }, "Reason", el("span", {}, "Needed for rejecting; it stays in the audit log and the skill's history."), reason),
    el("div", { class: "buttons" }, one.digests ? el("button", { class: "act yes", type: "submit" }, "Approve and put in force") : null, one.may_reject ? el("button", { class: "act no", type: "button", onclick: () => send("reject") }, "Reject") : null),
    said,
  );
  return el("section", { class: "card decide" }, el("h2", {}, "Decide"), form, el("details", { class: "more" }, el("summary", {}, "Or decide in a terminal"), ...terminal));
}

function pastOf(one) {
  const past = one.history.map((entry) => [moment(entry.time), badge(entry.stage), entry.why]);
  const audit = one.audit.map((entry) => [String(entry.seq), moment(entry.time), words(entry.kind), entry.channel || "", entry.user || "", entry.reason || entry.version || ""]);
  return el(
    "div", { class: "two" },
    past.length ? card("Its way so far", table([{ name: "when" }, { name: "stage" }, { name: "why" }], past, "Stages of the patch")) : null,
    audit.length ? card("Audit log", table([{ name: "entry" }, { name: "when" }, { name: "what" }, { name: "channel" }, { name: "user" }, { name: "note" }], audit, "Audit log of the patch")) : null,
  );
}
