import { html, useEffect, useMemo, useRef, useState } from '../ui.js'
import { get, may, send } from '../api.js'
import { useData } from '../data.js'
import { bind } from '../keys.js'
import { go, place, setQuery, to, toJob, toRun } from '../router.js'
import { Clock, clock, count, Due, duration, localZone, now, said, second, Time } from '../time.js'
import { Act, ActLink, ask, attempt, Copy, Dialog, Facts, Load, Panel, Rich, Segments, Table, Title,
  toast } from '../parts/bits.js'
import { asCommand, asYAML, definition } from '../parts/definition.js'
import { fateOf, Icon, Status } from '../parts/icons.js'
import { iso } from '../parts/ribbon.js'
import { Strip, Sum } from '../parts/strip.js'

export default function JobPage({ args: [ref] }) {
  const path = '/jobs/' + encodeURIComponent(ref), q = place.value.query
  const found = useData((abort) => get(path, {}, { abort }), [ref, q.get('ns')], { every: 3000, topics: ['runs'] })
  const job = found.data
  const tab = q.get('tab') ?? 'overview'
  useEffect(() => job && may('operator') && bind({ e: () => go(toJob(job, '/edit')), 
    p: async () => { await pauseOrResume(job); found.reload() } }), [job?.job_id, job?.status])
  return html`<${Load} of=${found} bones=${8}>${(job) => html`
    <${Title} title=${job.name || job.job_id} crumbs=${[['Jobs', to('/jobs')]]}
      actions=${html`<${JobActions} job=${job} changed=${found.reload}/>`}
      sub=${html`<span class="row wrapping"><${Status} of=${job.status}/><span><${English} job=${job}/></span>
        <code class="wrap">${calls(job)}</code>
        ${job.next_run_at && html`<span>next <strong><${Due} at=${job.next_run_at} zone=${job.timezone}/></strong>
          </span>`}${Object.entries(job.tags ?? {}).map(([k, v]) => html`<a class="tag"
          href=${to('/jobs', { tag: `${k}=${v}` })}>${k}=${v}</a>`)}</span>`}/>
    ${job.wait_reason && html`<div class="banner warn"><${Icon} name=${job.status === 'quarantined' ? 'triangle' :
      'clock'}/><div><p><strong>${job.status === 'quarantined' ? 'In quarantine' :
      'Due, and not running'}:</strong> ${said(job.wait_reason, job.timezone)}</p></div></div>`}
    <div class="toolbar"><${Segments} label="View" value=${tab} options=${[['overview', 'Overview'], ['runs', 'Runs'],
      ['definition', 'Definition']]} onChange=${(v) => setQuery({ tab: v === 'overview' ? '' : v, cursor: '' },
      { push: true })}/></div>
    ${tab === 'runs' ? html`<${Runs} job=${job}/>` : tab === 'definition' ? html`<${Definition} job=${job}/>` :
      html`<${Insight} job=${job}/>`}`}<//>`
}

// What it calls, in a line.
export const calls = ({ type, payload: p = {} }) => [type === 'http' ? p.method || (p.body == null ? 'GET' : 'POST') :
  type, p.url ?? p.command ?? p.queue ?? p.broker, p.subject ?? p.topic].filter(Boolean).join(' ').slice(0, 120)

/** The schedule as a sentence. */
function English({ job }) {
  const said = useData((abort) => job.description ? Promise.resolve(job) : post(job, abort),
    [job.schedule, job.timezone])
  return said.data ? html`<span title=${job.schedule}>${said.data.description}</span>` :
    html`<code>${job.schedule}</code>`
}
const post = (job, abort) => send('POST', '/schedule:preview',
  { body: { schedule: job.schedule, timezone: job.timezone, count: 1, job_id: job.job_id }, abort })

const spans = [['1h', '1 h', 3600e3], ['6h', '6 h', 6 * 3600e3], ['24h', '24 h', 86400e3], ['7d', '7 d', 7 * 86400e3],
  ['30d', '30 d', 30 * 86400e3]]

function Occurrences({ job }) {
  const pick = place.value.query.get('span') ?? '24h'
  const ms = spans.find((s) => s[0] === pick)?.[2] ?? 86400e3
  const data = useData(async (abort) => {
    const t = now(), from = iso(t - ms)
    const d = await get(`/jobs/${job.job_id}/occurrences`, { from, cells: 1440, namespace: job.namespace }, { abort })
    // What comes is there to be seen beside what was, not to fill the strip.
    const coming = d.occurrences.filter((o) => Date.parse(o.scheduled_at) > t), past = d.occurrences.length -
      coming.length
    return { ...d, from, occurrences: d.occurrences.slice(0, past).concat(coming.slice(0, past || 20).filter((o) =>
      Date.parse(o.scheduled_at) < t + ms / 6)) }
  }, [job.job_id, pick], { topics: ['job:' + job.job_id], every: 5000, ages: true })
  return html`<${Panel} title="Every occurrence" of=${data} actions=${html`<${Segments} label="Time" value=${pick}
    options=${spans.map(([v, t]) => [v, t])} onChange=${(v) => setQuery({ span: v === '24h' ? '' : v })}/>`}>
    <${Load} of=${data} bones=${4} what="The fate of every occurrence"
      empty=${{ when: (d) => !d.occurrences.length, icon: 'clock', title: 'No occurrence in this time',
      text: 'Choose a longer time range, or see the runs started by hand under Runs.' }}>
      ${(d) => html`<div class="body"><${Sum} of=${d.summary}/></div><${Strip} occurrences=${d.occurrences}
        zone=${job.timezone} job=${job}/>
        ${d.known_from && Date.parse(d.known_from) > Date.parse(d.from) + 1000 &&
          html`<footer>Complete from <${Clock} at=${d.known_from}
          zone=${job.timezone}/> on. Before that, only what was recorded is shown.</footer>`}`}<//><//>`
}

const names = { hold: 'Hold', clock: 'Clock', status: 'State', quarantine: 'Quarantine', blackout: 'Blackout',
  due: 'Due', overlap: 'Overlap', concurrency: 'Concurrency', queue: 'Queue', type: 'Type', tags: 'Tags',
  slots: 'Slots', line: 'Place in line' }
const glyphs = { ok: 'check', blocked: 'cross', unknown: 'question', later: 'clock' }
// A job whose time has not come waits for nothing that is wrong.
const mark = (c) => c.check === 'due' && c.state === 'blocked' ? 'later' : c.state

function Insight({ job }) {
  const why = useData((abort) => get(`/jobs/${job.job_id}:why`, { namespace: job.namespace }, { abort }), [job.job_id],
    { topics: ['job:' + job.job_id], every: 5000 })
  const stats = useData((abort) => get(`/jobs/${job.job_id}/stats`, { namespace: job.namespace }, { abort }),
    [job.job_id], { topics: ['job:' + job.job_id], every: 15000 })
  const runs = useData((abort) => get(`/jobs/${job.job_id}/runs`, { limit: 200, namespace: job.namespace }, { abort }),
    [job.job_id], { topics: ['job:' + job.job_id, 'runs'], every: 3000 })
  const [picked, setMinutes] = useState(0)
  const latest = useMemo(() => runs.data?.runs.slice(0, 8) ?? [], [runs.data])
  const zoom = [1, 5, 10, 60, 360].map((m) => [m, m < 60 ? `${m} min` : `${m / 60} h`])
  // Until one is picked: the shortest that has the last twenty runs.
  const fits = useMemo(() => { const t = now() - Date.parse(runs.data?.runs.slice(0, 20).at(-1)?.scheduled_at)
    return zoom.find(([m]) => !(t > m * 60e3))?.[0] ?? 360 }, [runs.data !== null])
  const minutes = picked || fits
  return html`<${Failing} runs=${runs.data?.runs ?? []} job=${job}/><${Occurrences} job=${job}/>
    ${stats.data?.runs > 0 && html`<div class="tiles after">
      <div class="tile"><span class="label">Success</span><span class="value">
        ${(stats.data.success_rate * 100).toFixed(stats.data.success_rate < 1 ? 1 : 0)} <small>%</small></span>
        <span class="sub">of ${count(stats.data.runs)} latest${stats.data.redriven > 0 && html`,
        <span class="s-missed">${count(stats.data.redriven)} after a redrive</span>`}</span></div>
      <div class="tile"><span class="label">Takes</span><span class="value">${duration(stats.data.duration_ms.p50)}
        </span>
        <span class="sub">p95 ${duration(stats.data.duration_ms.p95)}, at most ${duration(stats.data.duration_ms.max)}
        </span></div>
      <div class="tile"><span class="label">Lag</span><span class="value">${duration(stats.data.lag_ms.p50)}</span>
        <span class="sub">p95 ${duration(stats.data.lag_ms.p95)}, at most ${duration(stats.data.lag_ms.max)}</span>
        </div>
      <div class="tile"><span class="label">Open runs</span><span class="value">${count(job.open_runs)}</span>
        <span class="sub">${count(job.runs_started)} started in all</span></div></div>`}
    <${Panel} className="after" title="Timeline" aside=${`${job.timezone} · pale: waits · solid: runs`}
      actions=${html`<${Segments} label="Zoom" value=${minutes} options=${zoom} onChange=${setMinutes}/>`}>
      <${Load} of=${runs} bones=${3}>${(d) => html`<div class="body"><${Timeline} runs=${d.runs} zone=${job.timezone}
        minutes=${minutes}/></div>`}<//><//>
    <div class="cols after"><${Panel} title="Why" of=${why} className="c6"
      aside=${said(why.data?.verdict, job.timezone)}>
      <${Load} of=${why} bones=${6} what="The reason why a job waits">${(d) =>
      html`<ul class="why">${d.checks.map((c) => html`<li class=${mark(c)} key=${c.check}>
      <${Icon} name=${glyphs[mark(c)]} title=${c.state}/>
        <span class="what">${names[c.check] ?? c.check}</span><span>${said(c.text, job.timezone)}
          ${c.remedy && c.state !== 'ok' && html`<span class="remedy"><${Rich} text=${c.remedy}/></span>`}</span>
          </li>`)}</ul>`}<//><//>
      <${Panel} title="Latest runs" className=${why.error?.absent ? '' : 'c6'}
        actions=${html`<button class="button quiet" onClick=${() => setQuery({ tab: 'runs' },
        { push: true })}>All runs</button>`}>
        <${Load} of=${runs} bones=${6} empty=${{ when: (d) => !d.runs.length, icon: 'runs', title: 'It has not run yet',
          text: 'Run it now, or wait for its time.' }}>
          ${() => html`<${RunTable} runs=${latest} zone=${job.timezone} short/>`}<//><//></div>`
}

/** Since when every run failed, and the newest error; dead letters that wait for somebody. */
function Failing({ runs, job }) {
  const { data } = useData((abort) => get('/dead', { job: job.job_id, namespace: job.namespace, limit: 100 },
    { abort }), [job.job_id], { topics: ['dead'], every: 5000 })
  const n = data?.dead.length ?? 0, letters = `${n}${data?.next_cursor ? '+' : ''} dead letter${n === 1 ? '' : 's'}`
  const link = html`<a class="button" href=${to('/dead', { job: job.name || job.job_id })}>Dead letters</a>`
  const ended = runs.filter((r) => /succeeded|dead|lost/.test(r.status)), well = ended.findIndex((r) =>
    r.status === 'succeeded')
  const bad = well < 0 ? ended : ended.slice(0, well), more = well < 0 && runs.length > 199
  if (!bad.length) return n > 0 && html`<div class="banner warn"><${Icon} name="octagon"/><div class="grow"><p><strong>
    ${letters}</strong> to redrive or purge.</p></div>${link}</div>`
  return html`<div class="banner bad"><${Icon} name="cross"/><div class="grow"><p><strong>
    ${`Failing since ${more ? 'before ' : ''}`}<${Clock} at=${bad.at(-1).finished_at} zone=${job.timezone}/>
    ${`, ${count(bad.length)}${more ? '+' : ''} in a row${n ? `, ${letters}` : ''}`}</strong></p>
    <p class="mono wrap">${bad[0].error}</p></div>${link}</div>`
}

export function RunTable({ runs, short, named, foot, zone }) {
  const cols = [
    ['Scheduled', (r) => r.run_id ?
      html`<a class="main" href=${toRun(r)}><${Clock} at=${r.scheduled_at} zone=${zone}/></a>` :
      html`<span><${Clock} at=${r.first} zone=${zone}/>${r.count > 1 && html`<span class="sub">
        ${'to '}<${Clock} at=${r.last} zone=${zone}/></span>`}
      </span>`, named ? '168px' : 'minmax(166px, 1fr)', 'lead'],
    named && ['Job', (r) => r.job_deleted ? html`<span class="muted">deleted job ${r.job_name || r.job_id}</span>` :
      html`<a href=${toJob(r)} title=${r.job_name}>${r.job_name || r.job_id}</a>`, 'minmax(130px, 1fr)', 'wide'],
    ['Status', (r) => html`<${Status} of=${r.status} reason=${r.run_id ? undefined : r.reason}/>
      ${r.count > 1 && html` <span class="muted">× ${count(r.count)}</span>`}`, '118px'],
    !short && ['Error', (r) => html`<span class="muted clamp" title=${r.error ?? ''}>
      ${r.later_status && html`<span class=${'s-' + fateOf(r.later_status)}>then ${r.later_status}</span>${' · '}`}
      ${r.error || r.wait_reason || (r.reason && fateOf(r.status, r.reason) !== r.reason ?
      r.reason.replaceAll('_', ' ') : '')}</span>`, 'minmax(110px, 1.3fr)',
      'wide'],
    ['Attempt', (r) => r.attempt ?? '', '56px', 'num minor'],
    !short && ['Worker', (r) => html`<span class="muted">${r.worker ?? ''}</span>`, '84px', 'minor'],
    !short && !named && ['Lag', (r) => r.lag_ms == null ? '' : duration(r.lag_ms), '64px', 'num minor'],
    ['Took', (r) => html`<${Took} run=${r}/>`, '76px', 'num'],
  ].filter(Boolean)
  return html`<${Table} label="Runs" cols=${cols} rows=${runs} id=${(r) =>
    (r.run_id ?? r.first) + (r.fence ?? '') + (r.seq ?? '')} foot=${foot}/>`
}
/** How long it took, or runs already. */
export const Took = ({ run }) => run.started_at && run.finished_at ?
  duration(Date.parse(run.finished_at) - Date.parse(run.started_at))
  : run.started_at ? html`<${Since} at=${run.started_at}/>` : html`<span class="muted">–</span>`
const Since = ({ at }) => { second.value; return duration(Math.max(0, now() - Date.parse(at))) }

export const open = ['pending', 'waiting', 'claimed', 'running', 'retrying', 'canceling']
export const ends = ['succeeded', 'failed', 'dead', 'skipped', 'missed', 'expired', 'canceled', 'lost']
function Runs({ job }) {
  const q = place.value.query, status = q.get('status') ?? '', cursor = q.get('cursor') ?? ''
  const runs = useData((abort) => get(`/jobs/${job.job_id}/runs`, { limit: 100, status, cursor,
    namespace: job.namespace }, { abort }), [job.job_id, status, cursor],
    { topics: ['job:' + job.job_id, 'runs'], every: 3000 })
  return html`<${Panel} title="Runs" actions=${html`<select class="select" style=${{ width: 'auto' }}
    aria-label="Status" value=${status} onChange=${(e) => setQuery({ status: e.target.value, cursor: '' },
    { push: true })}>
      <option value="">every status</option>${['running', 'retrying', ...ends].map((s) =>
        html`<option value=${s}>${s}</option>`)}</select>`}>
    <${Load} of=${runs} bones=${8} empty=${{ when: (d) => !d.runs.length && !d.next_cursor, icon: 'runs',
      title: status ? 'No run with this status' : 'It has not run yet', text: status ? 'Choose another status.' :
      'Run it now, or wait for its time.' }}>
      ${(d) => html`<${RunTable} runs=${d.runs} zone=${job.timezone}/>${(d.next_cursor || cursor) &&
        html`<div class="more">${cursor && html`<button class="button"
        onClick=${() => setQuery({ cursor: '' }, { push: true })}>Newest</button>`}
        ${d.next_cursor && html`<button class="button" onClick=${() =>
          setQuery({ cursor: d.next_cursor }, { push: true })}>Older</button>`}</div>`}`}<//><//>`
}

function Definition({ job }) {
  const form = place.value.query.get('form') ?? 'json'
  const spec = definition(job)
  const text = form === 'yaml' ? asYAML(spec) : form === 'cli' ? asCommand(spec) : JSON.stringify(spec, null, 2)
  return html`<div class="cols"><${Panel} className="c8" title="Definition"
    actions=${html`<${Segments} label="Form" value=${form} options=${[['json', 'JSON'], ['yaml', 'YAML'],
    ['cli', 'CLI']]} onChange=${(v) => setQuery({ form: v === 'json' ? '' : v })}/>
    <${Copy} text=${text}/>`}>
      <div class="body"><pre class="codeblock" tabindex="0">${text}</pre></div><//>
    <${Panel} className="c4" title="Facts"><div class="body"><${Facts}
      rows=${[['Id', html`<code>${job.job_id}</code>`], ['Namespace', job.namespace], ['Version', job.version],
      ['Created', html`<${Time} at=${job.created_at}/>`], ['Changed', html`<${Time} at=${job.updated_at}/>`],
      ['Next', html`<${Due} at=${job.next_run_at} zone=${job.timezone}/>`],
        ['Last', html`<${Time} at=${job.last_run_at} zone=${job.timezone}/>`],
        ['Runs started', count(job.runs_started)], ['Delivery', job.delivery?.replaceAll('_', ' ')],
        ['Overlap', job.overlap], ['Priority', job.priority]]}/></div><//></div>`
}

// What can be done to a job, wherever it is shown.
const verb = (job, v = '') => '/jobs/' + encodeURIComponent(job.job_id) + (v && ':' + v)
const runNow = (job) => attempt(null, async () => {
  const run = await send('POST', verb(job, 'run'))
  toast('A run was started.')
  return run
})
const pauseOrResume = (job) => job.status === 'paused' || job.status === 'quarantined'
  ? attempt(`${job.name || job.job_id} is resumed.`, () => send('POST', verb(job, 'resume')))
  : attempt(`${job.name || job.job_id} is paused.`, () => send('POST', verb(job, 'pause')))
async function remove(job) {
  const name = job.name || job.job_id
  if (!await ask({ title: `Delete ${name}?`,
    text: 'Its open runs are canceled. Its history stays until it is trimmed.', yes: 'Delete',
    danger: true })) return
  if (await attempt(`${name} was deleted.`, () => send('DELETE', verb(job)))) go(to('/jobs'))
}

function JobActions({ job, changed }) {
  const [backfill, setBackfill] = useState(false)
  const halted = job.status === 'paused' || job.status === 'quarantined'
  return html`<${Act} className="primary" onClick=${async () => { const run = await runNow(job); changed();
    if (run?.run_id) go(toRun({ ...run, namespace: job.namespace })) }}><${Icon} name="play"/>Run now<//>
    <${Act} onClick=${async () => { await pauseOrResume(job); changed() }}><${Icon} name=${halted ? 'play' : 'bars'}/>
      ${halted ? 'Resume' : 'Pause'}<//>
    <${ActLink} href=${toJob(job, '/edit')}><${Icon} name="edit"/>Edit<//>
    <${Act} not=${job.schedule === '@manual' && 'It has no schedule, so nothing to run again.'}
      onClick=${() => setBackfill(true)}>Backfill<//>
    <${Act} not=${!job.open_runs && 'No run of it is open.'} onClick=${async () => {
      await attempt('Its open runs are being canceled.', () => send('POST', verb(job, 'cancel')))
      changed() }}>Cancel open runs<//>
    <${Act} className="danger icon-only" title="Delete" aria-label="Delete" onClick=${() => remove(job)}>
      <${Icon} name="trash"/><//>
    ${backfill && html`<${Backfill} job=${job} close=${() => { setBackfill(false); changed() }}/>`}`
}

/** Past occurrences, shown before they run. */
function Backfill({ job, close }) {
  const day = 86400e3, local = (t) => new Date(t).toISOString().slice(0, 16)
  const [from, setFrom] = useState(local(Date.now() - day)), [until, setUntil] = useState(local(Date.now())),
    [force, setForce] = useState(false)
  const [plan, setPlan] = useState(null), [error, setError] = useState(null)
  const post = async (dry) => {
    setError(null)
    try {
      const r = await send('POST', verb(job, 'backfill'), { body: { from: from + ':00Z', to: until + ':00Z',
        dry_run: dry, force } })
      if (dry) setPlan(r)
      else { toast(`${count(r.times.length)} occurrences run again.`); close() }
    } catch (e) { setError(e) }
  }
  const change = (set) => (e) => { set(e.target.type === 'checkbox' ? e.target.checked : e.target.value);
    setPlan(null) }
  return html`<${Dialog} title=${`Backfill ${job.name || job.job_id}`} onClose=${close} cancel="Close" form
    footer=${html`${plan ? html`<${Act} className="primary" disabled=${!plan.times.length}
        onClick=${() => post(false)}>Run ${count(plan.times.length)}<//>` :
        html`<${Act} className="primary" onClick=${() => post(true)}>Show what would run<//>`}`}>
    <div class="form"><div class="pair"><div class="field"><label for="bf-from">From (UTC)</label>
      <input id="bf-from" class="input" type="datetime-local" value=${from} onInput=${change(setFrom)}/></div>
      <div class="field"><label for="bf-to">To (UTC)</label><input id="bf-to" class="input" type="datetime-local"
        value=${until} onInput=${change(setUntil)}/></div></div>
      <label class="check"><input type="checkbox" checked=${force}
        onChange=${change(setForce)}/>Also repeat those that already ran, with new keys</label></div>
    ${error && html`<p class="s-failed small" role="alert">${error.detail} <span class="muted">${error.remedy}</span>
      </p>`}
    ${plan && html`<p class="small"><strong>${count(plan.times.length)}
      </strong> would run, ${count(plan.skipped.length)} ran already or are open.</p>
      <ul class="small muted">${plan.times.slice(0, 8).map((t) => html`<li>${clock(Date.parse(t), 'UTC')} UTC</li>`)}
        ${plan.times.length > 8 && html`<li>and ${count(plan.times.length - 8)} more</li>`}</ul>`}<//>`
}

// Runs of a job against time: what waited, what overlapped, what was tried again.
const bar = 12, step = 18, top = 22

function Timeline({ runs, zone = localZone, minutes }) {
  const box = useRef(null), [width, setWidth] = useState(900)
  useEffect(() => {
    const seen = new ResizeObserver(([e]) => setWidth(Math.max(280, Math.floor(e.contentRect.width))))
    seen.observe(box.current)
    return () => seen.disconnect()
  }, [])
  second.value
  const end = now(), begin = end - minutes * 60e3
  const x = (t) => Math.max(0, Math.min(width, (t - begin) / (end - begin) * width))
  const lanes = []
  const placed = runs.filter((r) => r.run_id && r.scheduled_at).map((r) => {
    const due = Date.parse(r.ready_at ?? r.scheduled_at), start = Date.parse(r.started_at ?? r.claimed_at) || null
    const over = Date.parse(r.finished_at) || (start ? end : Math.max(due, end))
    return { r, due, start, over }
  }).filter((p) => p.over >= begin && p.due <= end).sort((a, b) => a.due - b.due).slice(-200)
  for (const p of placed) {
    // By time, not by what is drawn: a lane more means that two were open at once.
    let lane = lanes.findIndex((over) => over <= p.due)
    if (lane < 0) lane = lanes.push(0) - 1
    if (lane > 11) lane = 11
    lanes[lane] = p.over
    p.lane = lane
  }
  const h = top + Math.max(2, Math.min(12, lanes.length)) * step + 4
  // At whole times, so that they move with the runs.
  const every = { 1: 10e3, 5: 60e3, 10: 120e3, 60: 600e3, 360: 3600e3 }[minutes] * (width < 500 ? 2 : 1)
  const ticks = []
  for (let t = Math.ceil(begin / every) * every; t < end; t += every) ticks.push(t)
  return html`<div class="timeline" ref=${box}><svg viewBox=${`0 0 ${width} ${h}`} height=${h} role="group"
    aria-label=${`Runs of the last ${minutes} minutes`}>
    ${ticks.map((t) => html`<g key=${t}><line class="grid" x1=${x(t)} x2=${x(t)} y1=${top - 6} y2=${h}/>
      ${x(t) < width - 60 && html`<text x=${x(t) + 4} y="11">${clock(t, zone, { date: false })}</text>`}</g>`)}
    ${placed.map(({ r, due, start, over, lane }) => { const y = top + lane * step, a = x(due), b = start ? x(start) :
      x(over), c = x(over)
      const text = `${clock(Date.parse(r.scheduled_at), zone)}, ${r.status}${r.attempt > 1 ? `, attempt ${r.attempt}` :
        ''}${start ? `, ${duration(over - start)}` : ''}`
      return html`<a href=${toRun(r)} key=${r.run_id + (r.fence ?? '')} aria-label=${text}
        class=${'s-' + fateOf(r.status, r.reason)}><title>${text}</title>
        ${b - a > .5 && html`<rect class="wait" x=${a} y=${y + 3} width=${b - a} height=${bar - 6} rx="2"/>`}
        ${start && html`<rect class="bar" x=${b} y=${y} width=${Math.max(3, c - b)} height=${bar} rx="2.5"/>`}
        ${r.attempt > 1 && start && c - b > 12 && html`<text x=${b + 4} y=${y + 10}
          style=${{ fill: 'var(--surface)', fontSize: '10px' }}>${r.attempt}</text>`}</a>` })}
  </svg></div>`
}
