import { html, useMemo } from '../ui.js'
import { get, who } from '../api.js'
import { useData } from '../data.js'
import { cluster, stats } from '../live.js'
import { inSpace, namespace, place, setQuery, to, toJob } from '../router.js'
import { count, duration, now, second, span, Time } from '../time.js'
import { Chart, quantile } from '../parts/chart.js'
import { Icon } from '../parts/icons.js'
import { ActLink, Load, Meter, Panel, Rich, Segments, Still, Title } from '../parts/bits.js'
import { byJob, Ribbon } from '../parts/ribbon.js'

export default function Overview() {
  const whole = !who.value?.namespace, space = { namespace: namespace() || who.value?.namespace || '*' }
  const status = useData((abort) => whole ? get('/status', {}, { abort }) : Promise.resolve(null), [whole],
    { topics: ['cluster'], every: 5000 })
  const next = useData((abort) => get('/upcoming', { ...space, limit: 300 }, { abort })
    .then((d) => ({ occurrences: byJob(d.occurrences).slice(0, 10) })), [space.namespace],
    { every: 5000 })
  const dead = useData((abort) => get('/dead:groups', { ...space, limit: 5 }, { abort }), [space.namespace],
    { topics: ['dead'], every: 15000 })
  const queues = useData((abort) => get('/queues', space, { abort }), [space.namespace], { every: 10000 })
  const failing = useData((abort) => get('/jobs', { ...space, failing: true, limit: 100 }, { abort }),
    [space.namespace], { topics: ['dead'], every: 15000 })
  return html`<${Title} title="Overview" sub=${cluster.value?.leader &&
    html`${cluster.value.members.length} ${cluster.value.members.length > 1 ? 'nodes' :
    'node'}, ${cluster.value.leader} leads`}
      actions=${html`<${ActLink} className="primary" href=${to('/jobs/new')}><${Icon} name="plus"/>New job<//>`}/>
    <${Troubles} list=${status.data?.troubles}/>
    <${Tiles} status=${status.data} failing=${failing.data} next=${next.data?.occurrences?.[0]?.scheduled_at}/>
    <${Charts} space=${space}/>
    <div class="cols"><${Panel} title="What fails" of=${dead} className="c7"
      actions=${html`<a class="button quiet" href=${to('/dead')}>All dead letters</a>`}>
        <${Load} of=${dead} bones=${3} what="The list of failures" empty=${{ when: (d) => !d.groups.length,
          icon: 'check', title: 'No dead letters',
          text: 'Runs that have used up their attempts are grouped here by error.' }}>
          ${(d) => html`<${Still} rows=${d.groups} id=${(g) => g.key}>${(rows, gone) => html`<ul class="failures">
            ${rows.map((g) => html`<li key=${g.key} inert=${gone(g)}>
            <a class="failure" href=${to('/dead', { group: g.key, ...inSpace(g) })}><b class="num">${count(g.count)}</b>
            <span class="grow"><span class="mono clamp">
              ${g.sample?.error || g.error || 'no error text'}</span><span class="sub">
              ${inSpace(g).ns ? g.namespace + ': ' : ''}
              ${g.job_names.slice(0, 3).join(', ')}${g.jobs > 3 ? ` and ${g.jobs - 3} more` : ''} · last <${Time}
              at=${g.last}/></span></span></a></li>`)}</ul>`}<//>`}<//><//>
      <${Panel} title="Next" of=${next} className="c5" actions=${html`<a class="button quiet"
        href=${to('/upcoming')}>Upcoming</a>`}>
        <${Load} of=${next} bones=${5} what="The list of what comes next"
          empty=${{ when: (d) => !d.occurrences.length, icon: 'clock', title: 'Nothing is due',
          text: 'Create a job to see when it runs.',
          command: `carillon submit --name hello --schedule '@every 10s' --shell 'date'` }}>
          ${(d) => html`<${Still} rows=${d.occurrences} id=${(o) => o.job_id}>${(rows, gone) =>
            html`<ul class="next">${rows.map((o) => html`<li key=${o.job_id} class=${gone(o) ?
            'muted' : ''}><a class="ellipsis" href=${toJob(o)}>${o.name || o.job_id}</a>
            <span class="tag">${o.queue || o.type}</span>
            <span class="when"><${Time} at=${Math.max(Date.parse(o.scheduled_at), now())}/></span>
            </li>`)}</ul>`}<//>`}<//><//></div>
    <${Ribbon} space=${space}/>
    <${Blocked} of=${queues}/>`
}

function Troubles({ list }) {
  if (!list?.length) return null
  return html`<section class="panel troubles" aria-label="What is wrong"><ul>
    ${list.slice(0, 8).map((t) => html`<li key=${t.code + t.node + t.text}><${Icon} name="triangle"/><div><strong>
    ${t.node ? `${t.node}: ` : ''}${t.text}</strong>
    ${t.since && html` <span class="muted">since <${Time} at=${t.since}/></span>`}
      ${t.remedy && html`<div class="muted"><${Rich} text=${t.remedy}/></div>`}</div></li>`)}</ul></section>`
}

function Tiles({ status, failing, next }) {
  const s = stats.value ?? {}
  const slots = s.slots ?? status?.workers.reduce((n, w) => n + w.slots, 0), bad = failing?.jobs.length
  const due = next ?? status?.next_due_at
  second.value
  const left = due ? Date.parse(due) - now() : null
  return html`<div class="tiles">
    <a class="tile" href=${to('/jobs')}><span class="label">Jobs</span><span class="value">
      ${count(s.jobs ?? status?.jobs)}</span><span class="sub">in all namespaces</span></a>
    <a class="tile" href=${to('/runs')}><span class="label">Running</span><span class="value">
      ${count(s.running)} <small>/ ${count(slots)} slots</small></span>
      <${Meter} value=${s.running ?? 0} of=${slots ?? 0} label=${`${s.running ?? 0} of ${slots ?? 0} slots`}/></a>
    <a class="tile" href=${to('/runs', { status: 'pending' })}><span class="label">Backlog</span><span class="value">
      ${count(s.backlog)}${s.backlog_more ? '+' : ''}</span><span class="sub">due, not started</span></a>
    ${failing && html`<a class=${'tile' + (bad ? ' hot' : '')} href=${to('/jobs', { failing: 'true' })}>
      <span class="label">Failing jobs</span><span class="value">${count(bad)}${failing.next_cursor ? '+' : ''}</span>
      <span class="sub">${failing.next_cursor ? `of ${count(failing.scanned)} looked at` : 'their last run failed'}
      </span></a>`}
    <a class=${'tile' + (s.dead ? ' hot' : '')} href=${to('/dead')}><span class="label">Dead letters</span>
      <span class="value">${count(s.dead)}</span><span class="sub">attempts used up</span></a>
    <a class="tile" href=${to('/upcoming')}><span class="label">Next due</span><span class="value">
      ${left == null ? '–' : left <= 0 ? 'now' : span(left) || 'now'}</span>
      <span class="sub">${s.lag_p99_ms == null ? '' : `lag p99 ${duration(s.lag_p99_ms)}`}</span></a></div>`
}

const windows = [['5m', '5 min'], ['1h', '1 h'], ['24h', '24 h']]
const drawn = [['succeeded', 'succeeded'], ['failed', 'failed'], ['dead', 'dead'], ['lost', 'lost'],
  ['canceled', 'not run']]

/** A line goes on over short times without a run (undefined); longer ones are a gap (null). */
function joined(values) {
  let from = 0
  values.forEach((v, i) => {
    if (v === null) return
    if (i - from < 20) values.fill(undefined, from, i)
    from = i + 1
  })
  return values
}

function Charts({ space }) {
  const w = place.value.query.get('window') ?? '5m'
  const data = useData((abort) => get('/stats', { ...space, window: w }, { abort }), [w, space.namespace],
    { every: w === '5m' ? 2000 : 30000, topics: w === '5m' ? ['stats'] : [] })
  const d = data.data
  const made = useMemo(() => {
    if (!d) return null
    const per = d.step_ms / 1000, known = new Map(d.buckets.map((b) => [Date.parse(b.at), b]))
    const buckets = [], times = [] // those with nothing in them are not sent
    const first = Math.ceil(Date.parse(d.from) / d.step_ms) * d.step_ms
    for (let t = first; t < Date.parse(d.to); t += d.step_ms) {
      times.push(t / 1000)
      buckets.push(known.get(t) ?? {})
    }
    const not = (b) => Object.values(b.not_run ?? {}).reduce((a, x) => a + x, 0)
    return { times, runs: drawn.map(([k, label]) => ({ label, color: k,
      values: buckets.map((b) => (k === 'canceled' ? not(b) : b[k] ?? 0) / per) })),
      lag: [['p99', .99, 'missed'], ['p50', .5, 'running']].map(([label, q, color]) =>
        ({ label, color, values: joined(buckets.map((b) => quantile(b.lag_ms ?? [], d.bounds_ms, q))) })) }
  }, [d])
  if (data.error?.absent) return null
  const pick = html`<${Segments} label="Window" value=${w} options=${windows}
    onChange=${(v) => setQuery({ window: v === '5m' ? '' : v })}/>`
  const figure = (v) => v >= 100 || v === Math.round(v) ? count(Math.round(v)) : +v.toFixed(2)
  return html`<div class="cols even"><${Panel} title="Runs a second" className="c7" actions=${pick}>
    <${Load} of=${data} bones=${6}>${() => html`<${Chart} stacked label="Runs a second by how they ended"
    times=${made.times} series=${made.runs} format=${figure}/>`}<//><//>
    <${Panel} title="Lag" aside="from ready to started" className="c5"><${Load} of=${data} bones=${6}>
      ${() => html`<${Chart} log label="Lag of runs, median and 99th percentile" times=${made.times} series=${made.lag}
      format=${(v) => duration(v)}/>`}<//><//></div>`
}

function Blocked({ of }) {
  const stuck = of.data?.queues?.filter((q) => q.backlog > 0 && (q.paused || q.wait_reason)) ?? []
  if (!stuck.length) return null
  return html`<${Panel} title="Queues that wait" className="after"><ul class="next">
    ${stuck.map((q) => html`<li key=${q.namespace + q.name}><a href=${to('/queues')}>${q.name}</a>
    <span class="muted grow">${q.paused ? 'It is paused.' : q.wait_reason}</span>
    <span class="when">${count(q.backlog)} due, oldest <${Time} at=${q.oldest_due_at}/></span></li>`)}</ul><//>`
}
