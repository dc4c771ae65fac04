// How the cluster is doing, and what is due.
import { html, signal, useEffect, useMemo, useRef, useState } from '../ui.js'
import { get, who } from '../api.js'
import { useData } from '../data.js'
import { cluster, stats } from '../live.js'
import { inSpace, namespace, place, setQuery, to, toJob } from '../router.js'
import { clock, Clock, count, duration, localZone, now, second, span, Time } from '../time.js'
import { Chart, quantile } from '../parts/chart.js'
import { Icon } from '../parts/icons.js'
import { ActLink, Load, Meter, Panel, Rich, Segments, Still, Table, Title } from '../parts/bits.js'
import { byJob, filled, iso, Ribbon } from '../parts/ribbon.js'

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
    <${Tiles} status=${status.data} failing=${failing.data} space=${space.namespace}
      next=${next.data?.occurrences?.[0]?.scheduled_at}/>
    <${Charts} space=${space}/>
    <div class="cols"><${Panel} title="What fails" of=${dead} className="c7"
      actions=${html`<a class="button quiet" href=${to('/dead')}>All dead letters</a>`}>
        <${Load} of=${dead} bones=${3} what="The list of failures" empty=${{
          when: (d) => !d.groups.length && !d.next_cursor, icon: 'check', title: 'No dead letters',
          text: 'Runs that have used up their attempts are grouped here by error.' }}>
          ${(d) => !d.groups.length ? html`<p class="body muted">
            None among the newest ${count(d.scanned)} dead letters.</p>` : html`<${Still} rows=${d.groups}
            id=${(g) => g.key}>${(rows, gone) => html`<ul class="failures">
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

function Tiles({ status, failing, next, space }) {
  const s = stats.value ?? {}
  const slots = s.slots ?? status?.workers.reduce((n, w) => n + w.slots, 0), bad = failing?.jobs.length
  const due = next ?? status?.next_due_at
  second.value
  const left = due ? Date.parse(due) - now() : null
  const all = who.value?.namespace ? {} : { ns: '*' }, sub = (text) => html`<span class="sub">
    ${all.ns && namespace() && namespace() !== '*' ? 'in all namespaces' : text}</span>`
  return html`<div class="tiles">
    <a class="tile" href=${to('/jobs', all)}><span class="label">Jobs</span><span class="value">
      ${count(s.jobs ?? status?.jobs)}</span><span class="sub">in all namespaces</span></a>
    <a class="tile" href=${to('/runs', { status: 'open', ...all })}><span class="label">Running</span>
      <span class="value">
      ${count(s.running)} <small>/ ${count(slots)} slots</small></span>
      <${Meter} value=${s.running ?? 0} of=${slots ?? 0} label=${`${s.running ?? 0} of ${slots ?? 0} slots`}/>
      ${sub()}</a>
    <a class="tile" href=${to('/runs', { status: 'pending', ...all })}><span class="label">Backlog</span>
      <span class="value">
      ${count(s.backlog)}${s.backlog_more ? '+' : ''}</span>${sub('due, not started')}</a>
    ${failing && html`<a class=${'tile' + (bad ? ' hot' : '')} href=${to('/jobs', { failing: 'true',
      ns: space === '*' ? '*' : namespace() })}>
      <span class="label">Failing jobs</span><span class="value">${count(bad)}${failing.next_cursor ? '+' : ''}</span>
      <span class="sub">${failing.next_cursor ? `of ${count(failing.scanned)} looked at` : 'their last run failed'}
      </span></a>`}
    <a class=${'tile' + (s.dead ? ' hot' : '')} href=${to('/dead', all)}><span class="label">Dead letters</span>
      <span class="value">${count(s.dead)}</span>${sub('attempts used up')}</a>
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

const hour = 3600e3, day = 24 * hour
const spans = { '1h': [hour, 'The next hour by minute'], '24h': [day, 'The next 24 hours by minute'],
  '7d': [7 * day, 'Seven days by hour'] }

export function Upcoming() {
  const q = place.value.query, view = spans[q.get('view')] ? q.get('view') : '24h', cell = q.get('at')
  const step = view === '7d' ? '1h' : '1m', ms = view === '7d' ? hour : 60e3
  const load = useData((abort) => { const from = Math.floor(now() / ms) * ms;
    return get('/upcoming:load', { from: iso(from), to: iso(from + spans[view][0]), step }, { abort }) },
    [view, q.get('ns')], { every: 60000 })
  return html`<${Title} title="Upcoming" sub="How much is due, before it is."/>
    <${Panel} title=${spans[view][1]} aside=${localZone}
      actions=${html`<${Scale}/><${Segments} label="View" value=${view} options=${[['1h', '1 h'], ['24h', '24 h'],
      ['7d', '7 d']]} onChange=${(v) => setQuery({ view: v === '24h' ? '' : v, at: '' }, { push: true })}/>`}>
      <${Load} of=${load} bones=${8} what="The load ahead of time">${(d) =>
        html`<${Heat} d=${d} days=${view === '7d'} cell=${cell}/>`}<//><//>
    ${cell && html`<${Cell} key=${cell} at=${cell} step=${step} ms=${ms}/>`}
    <${List} cell=${cell}/>
    ${load.data && view === '24h' && html`<${Jitter} d=${load.data}/>`}`
}

const Scale = () => html`<span class="scale heat" aria-hidden="true">few <i></i>
  ${[1, 2, 3, 4, 5].map((n) => html`<i class=${'h' + n}></i>`)} many · <i class="h4 projected"></i> estimated</span>`

const dates = new Intl.DateTimeFormat('en-GB', { timeZone: localZone, weekday: 'short', day: 'numeric',
  month: 'short' })

// What the cell says that is pointed at, apart from the 1,440 cells, which are not drawn again for it.
const over = signal('')
const Over = () => html`<span class="over">${over.value || 'Point at a cell for its number; click it for what is due.'}
  </span>`

/**
 * A row an hour (or a day), a cell a minute (or an hour). Levels grow by the logarithm: one peak must not make all
 * else pale.
 */
function Heat({ d, days, cell }) {
  const rows = useMemo(() => {
    const out = new Map()
    for (const b of filled(d)) {
      const at = clock(b.t, localZone, { seconds: false }), name = days ? dates.format(b.t) : at.slice(0, -2)
      if (!out.has(name)) out.set(name, [])
      out.get(name).push(b)
    }
    return [...out]
  }, [d, days])
  const most = Math.max(1, ...d.buckets.map((b) => b.count))
  const level = (n) => !n ? 0 : Math.max(1, Math.ceil(Math.log(n + 1) / Math.log(most + 1) * 5))
  // By the wall clock here, which is not everywhere whole hours from UTC.
  const wall = (t) => clock(t, localZone, { date: false, seconds: false })
  const column = (t) => Number(days ? wall(t).slice(0, 2) : wall(t).slice(3))
  const width = days ? 24 : 60
  const [cur, setCur] = useState(null), first = rows[0][1][0].t, last = rows.at(-1)[1].at(-1).t
  // One stop of the Tab key, and arrows from cell to cell: 1,440 stops would be none.
  const key = (e) => {
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: width, ArrowUp: -width }[e.key]
    if (by) {
      const t = Math.max(first, Math.min(last, (cur ?? first) + (cur === null ? 0 : by * d.step_ms)))
      over.value = document.getElementById('c' + t)?.title
      setCur(t)
    } else if ((e.key === 'Enter' || e.key === ' ') && cur !== null) pick(iso(cur))
    else return
    e.preventDefault()
  }
  const pick = (at) => setQuery({ at: cell && Date.parse(cell) === Date.parse(at) ? '' : at })
  return html`<div class="heat-scroll">
    <table class=${'heat ' + (days ? 'days' : 'minutes')} role="grid" tabindex="0" aria-label="Load by time"
      aria-activedescendant=${cur !== null ? 'c' + cur : null} onKeyDown=${key} onBlur=${() => setCur(null)}
      onPointerOver=${(e) => { over.value = e.target.title }} onPointerLeave=${() => { over.value = '' }}
      onClick=${(e) => { const at = e.target.dataset.at; if (at) pick(at) }}><thead><tr><th></th>
    ${Array.from({ length: width / (days ? 3 : 10) }, (_, i) => html`<th colspan=${days ? 3 : 10} scope="col">
    ${String(i * (days ? 3 : 10)).padStart(2, '0').replace(/(.*)/, days ? '$1:00' : ':$1')}</th>`)}</tr></thead>
    <tbody>${rows.map(([name, list]) => { const at = new Map(list.map((b) => [column(b.t), b]))
      return html`<tr key=${name}><th scope="row">${days ? name : wall(list[0].t).slice(0, 3) + '00'}
        </th>${Array.from({ length: width }, (_, i) => { const b = at.get(i)
        if (!b) return html`<td></td>`
        const text = `${clock(b.t, localZone, { seconds: false })}: ${count(b.count)} due${b.kind === 'projected' ?
          ', estimated' : ''}`
        return html`<td id=${'c' + b.t} class=${`h${level(b.count)} ${b.kind}${cur === b.t ? ' cur' : ''}`}
          title=${text} aria-label=${text} aria-selected=${cell !== null && Date.parse(cell) === b.t}
          data-at=${b.at}></td>` })}</tr>` })}</tbody></table></div>
    <footer class="small muted pad"><${Over}/><span>${count(d.buckets.reduce((n, b) => n + b.count,
      0))} in all · most in one ${days ? 'hour' : 'minute'}: ${count(most)}
      ${d.exact_until < d.to && ' · estimated'}
      ${d.exact_until < d.to && d.exact_until > d.from && html` from <${Clock} at=${d.exact_until} seconds=${false}/>`}
      ${d.sampled && `: ${count(d.scanned)} of ${count(d.total)} jobs were looked at`}</span></footer>`
}

function Cell({ at, step, ms }) {
  const top = useData((abort) => get('/upcoming:load', { from: at, to: iso(Date.parse(at) + ms), step, bucket: at },
    { abort }), [at, step]), ref = useRef(null)
  useEffect(() => ref.current.scrollIntoView({ block: 'nearest' }), [top.data])
  return html`<div class="after" ref=${ref}><${Panel} title=${'Due at ' + clock(Date.parse(at), localZone,
    { seconds: false }) + (step === '1h' ? ', within the hour' : '')}
    actions=${html`<button class="button quiet" onClick=${() => setQuery({ at: '' })}>Close</button>`}>
    <${Load} of=${top} bones=${3} empty=${{ when: (d) => !d.top?.[0]?.schedules.length, icon: 'clock',
      title: 'Nothing is due then' }}>${(d) => html`<${Table} label="Schedules" rows=${d.top[0].schedules}
      id=${(s) => s.schedule + s.timezone} cols=${[['Schedule', (s) => html`<code>${s.schedule}</code>`,
      'minmax(120px, 1fr)', 'lead'], ['Zone', (s) => html`<span class="muted">${s.timezone}</span>`, '150px'],
      ['Occurrences', (s) => count(s.count), '110px', 'num'], ['Jobs', (s) => count(s.jobs), '80px', 'num'],
        ['For example', (s) => html`<a href=${to('/jobs/' + encodeURIComponent(s.example))}>${s.example}</a>`,
        'minmax(120px, 1fr)', 'wide']]}/>`}<//><//></div>`
}

/** What the busiest minute would become if its jobs were spread over more time. */
function Jitter({ d }) {
  const [minutes, setMinutes] = useState(0)
  const counts = filled(d).map((b) => b.count), peak = Math.max(0, ...counts)
  const spread = useMemo(() => {
    if (!minutes) return peak
    const out = new Float64Array(counts.length + minutes)
    counts.forEach((n, i) => { for (let k = 0; k <= minutes; k++) out[i + k] += n / (minutes + 1) })
    return Math.round(Math.max(...out))
  }, [d, minutes])
  if (peak < 2) return null
  return html`<${Panel} className="after" title="If every job had jitter"><div class="body row wrapping spread">
    <div class="grow"><label class="label" for="jitter">Jitter: ${minutes ? duration(minutes * 60e3) : 'none'}</label>
    <input id="jitter" type="range" min="0" max="60" step="1" value=${minutes}
    onInput=${(e) => setMinutes(Number(e.target.value))}/></div>
    <div class="sum"><span><b>${count(peak)}</b>in the busiest minute now</span><span><b class="s-succeeded">
      ${count(spread)}</b>with jitter${minutes ? `, ${Math.round((1 - spread / peak) * 100)} % less` : ''}</span></div>
      </div><//>`
}

const drawable = (rows) => ({ rows: rows.slice(0, 200), cut: rows[200]?.scheduled_at })

function List({ cell }) {
  const [limit, setLimit] = useState(100)
  const next = useData((abort) => get('/upcoming', { from: cell ?? '', limit }, { abort }).then((d) =>
    ({ ...drawable(byJob(d.occurrences)), last: d.next_cursor && d.occurrences.at(-1).scheduled_at })),
    [cell, limit, place.value.query.get('ns')], { every: cell ? 0 : 3000 })
  // Each job that is due before would have to be looked at; the schedules of the cell say enough.
  if (cell && next.error?.field === 'from') return null
  return html`<${Panel} className="after" of=${next} title=${cell ? html`Next, from ${clock(Date.parse(cell), localZone,
    { seconds: false })} on` : 'Next'}>
    <${Load} of=${next} bones=${6} what="The list of what comes next" empty=${{ when: (d) => !d.rows.length,
    icon: 'clock', title: 'Nothing is due', text: 'No job has an occurrence after this.' }}>
    ${(d) => html`<${Table} label="Next occurrences" rows=${d.rows} id=${(o) => o.job_id}
      cols=${[['Job', (o) => html`<a class="main" href=${toJob(o)}>${o.name || o.job_id}</a>`, 'minmax(140px, 1.4fr)',
      'lead'], ['Due', (o) => html`<${Time} at=${o.scheduled_at}/>`, '90px'],
      ['Scheduled', (o) => html`<${Clock} at=${o.scheduled_at}/>${o.start_at > o.scheduled_at &&
        html`<span class="sub">+${duration(Date.parse(o.start_at) - Date.parse(o.scheduled_at))} jitter</span>`}`,
        '160px'], ['Then', (o) => o.more > 0 && html`<span class="muted">${count(o.more)} more until <${Clock}
        at=${o.last} date=${false}/></span>`, '160px', 'minor'],
        ['Type', (o) => html`<span class="muted">${o.type}</span>`, '80px', 'minor'],
        ['Queue', (o) => o.queue && html`<span class="tag">${o.queue}</span>`, '110px', 'minor']]}/>
      ${(d.cut || d.last) && html`<div class="more"><span>${d.cut ?
        html`The first 200 jobs. More are due from <${Clock} at=${d.cut}/> on.` :
        html`All that is due until <${Clock} at=${d.last}/>`}</span>
        ${!d.cut && limit < 1000 && html`<button class="button"
        onClick=${() => setLimit(1000)}>Show later ones</button>`}</div>`}`}<//><//>`
}
