// Queues, workers and calendars, the cluster, and its demo.
import { html, useEffect, useState } from '../ui.js'
import { get, Problem, send } from '../api.js'
import { useData } from '../data.js'
import { cluster, link, node } from '../live.js'
import { namespace, place, setQuery, to } from '../router.js'
import { bytes, clock, count, duration, now, second, Time } from '../time.js'
import { Act, ask, attempt, Command, Dialog, Facts, Failure, Load, Meter, Panel, Rich, Table, Title } from
  '../parts/bits.js'
import { fates, Icon, Status } from '../parts/icons.js'

export function Queues() {
  const q = place.value.query, cursor = q.get('cursor') ?? ''
  const list = useData((abort) => get('/queues', { limit: 200, cursor }, { abort }), [q.get('ns'), cursor],
    { topics: ['runs'], every: 3000 })
  const [editing, setEditing] = useState(null)
  const path = (q, verb) => `/queues/${encodeURIComponent(q.name)}${verb ? ':' + verb : ''}`, at = (q) =>
    ({ params: { namespace: q.namespace } })
  const toggle = async (q) => {
    await attempt(`${q.name} ${q.paused ? 'goes on' : 'is paused'}.`, () =>
      send('POST', path(q, q.paused ? 'resume' : 'pause'), at(q)))
    list.reload()
  }
  return html`<${Title} title="Queues" sub="Lines of work for workers, with a limit and a pause."
    actions=${html`<${Act} className="primary" onClick=${() => setEditing({})}>
    <${Icon} name="plus"/>New queue<//>`}/>
    <${Panel}><${Load} of=${list} bones=${5} empty=${{ when: (d) => !d.queues.length && !cursor, icon: 'queues',
      title: 'No queues', text: 'A job of type queue puts its runs into a queue, and your own workers take them.',
      command: `carillon submit --name mail --schedule '@every 1m' --queue mail` }}>
      ${(d) => html`<${Table} label="Queues" rows=${d.queues} id=${(q) => q.namespace + '/' + q.name} cols=${[
        ['Queue', (q) => html`<strong>${q.name}</strong>${namespace() === '*' &&
          html`<span class="sub">${q.namespace}</span>`}`, 'minmax(110px, 1fr)', 'lead'],
        ['State', (q) => q.paused ? html`<${Status} of="paused"/>` : html`<${Status} of="running" label="open"/>`,
          '90px'],
        ['Running', (q) => html`<span>${count(q.running)}${q.concurrency ? ` of ${count(q.concurrency)}` : ''}
          </span>${q.concurrency > 0 && html`<${Meter} value=${q.running} of=${q.concurrency}
          label=${`${q.running} of ${q.concurrency}`} warn=${1} bad=${2}/>`}`, '120px', 'said'],
        ['Backlog', (q) => html`${count(q.backlog)}${q.backlog_more ? '+' : ''}
          ${q.oldest_due_at && html`<span class="sub">oldest <${Time} at=${q.oldest_due_at}/></span>`}`, '130px',
          'said'],
        ['', (q) => html`<span class="muted clamp" title=${q.wait_reason}>${q.wait_reason ?? ''}</span>`,
          'minmax(80px, 2fr)', 'wide'],
        ['Workers', (q) => q.workers?.length ?? '–', '66px', 'num minor'],
          ['Jobs', (q) => count(q.jobs), '60px', 'num minor'],
        ['', (q) => html`<${Act} className="quiet" onClick=${() => toggle(q)}>${q.paused ? 'Resume' : 'Pause'}<//>
          <${Act} className="quiet" onClick=${() => setEditing(q)}>Limit<//>`, '136px', 'actions']]}/>
        ${(d.next_cursor || cursor) && html`<div class="more">${cursor && html`<button class="button"
          onClick=${() => setQuery({ cursor: '' }, { push: true })}>First</button>`}
          ${d.next_cursor && html`<button class="button" onClick=${() =>
            setQuery({ cursor: d.next_cursor }, { push: true })}>Next</button>`}</div>`}`}<//><//>
    ${editing && html`<${EditQueue} q=${editing} close=${() => { setEditing(null); list.reload() }}/>`}`
}

async function mustBeNew(path, what) {
  const found = await get(path).catch((e) => { if (e.status !== 404) throw e })
  if (found && found.declared !== false) throw new Problem({ field: 'name',
    detail: `There is a ${what} of this name.` })
}

function EditQueue({ q, close }) {
  const [name, setName] = useState(q.name ?? ''), [limit, setLimit] = useState(String(q.concurrency ?? 0)),
    [error, setError] = useState(null)
  const save = async () => {
    try {
      const path = `/queues/${encodeURIComponent(name)}`, body = { concurrency: Number(limit) }
      if (!q.name) await mustBeNew(path, 'queue')
      await send(q.declared ? 'PATCH' : 'PUT', path, { body, params: q.namespace ? { namespace: q.namespace } : {} })
      close()
    } catch (e) { setError(e) }
  }
  const wrong = (f) => error?.field === f && html`<span class="wrong" role="alert">${error.detail}</span>`
  return html`<${Dialog} title=${q.name ? `Limit of ${q.name}` : 'New queue'} onClose=${close} form
    footer=${html`<${Act} className="primary" disabled=${!name} onClick=${save}>Save<//>`}>
    <div class="form">${!q.name && html`<div class="field"><label for="q-name">Name</label>
      <input id="q-name" class="input" value=${name} onInput=${(e) => setName(e.target.value)}/>${wrong('name')}</div>`}
      <div class="field"><label for="q-limit">Runs that workers may have at once</label>
        <input id="q-limit" class="input" type="number" min="0" value=${limit}
        onInput=${(e) => setLimit(e.target.value)}/><span class="hint">0: no limit</span>${wrong('concurrency')}</div>
        </div>
    ${error && error.field !== 'name' && error.field !== 'concurrency' &&
      html`<p class="s-failed small" role="alert">${error.detail} ${error.remedy}</p>`}<//>`
}

export function Workers() {
  const status = useData((abort) => get('/status', {}, { abort }), [], { topics: ['cluster'], every: 3000 })
  const busy = status.data?.workers.reduce((n, w) => n + w.busy, 0), slots = status.data?.workers.reduce((n, w) =>
    n + w.slots, 0)
  return html`<${Title} title="Workers"
    sub=${status.data ?
    `${count(status.data.workers.length)} ${status.data.workers.length === 1 ? 'worker' : 'workers'}, ` +
      `${count(busy)} of ${count(slots)} slots are busy` :
    'Processes that take runs and report results.'}/>
    <${Panel}><${Load} of=${status} bones=${5} empty=${{ when: (d) => !d.workers.length, icon: 'workers',
      title: 'No worker is registered',
      text: 'Every node has one, which registers once there is a leader. You can run more anywhere:',
      command: 'carillon worker --addr HOST:7400' }}>
      ${(d) => html`<${Table} label="Workers" rows=${d.workers} id=${(w) => w.worker} cols=${[
        ['Worker', (w) => html`<a class="main" href=${to('/runs', { worker: w.worker })}>${w.worker}</a>
          ${w.where && html`<span class="sub" title=${w.where}>${w.where}</span>`}`, 'minmax(150px, 1.6fr)', 'lead'],
        ['Busy', (w) => html`<span>${count(w.busy)} of ${count(w.slots)}</span>
          <${Meter} value=${w.busy} of=${w.slots} label=${`${w.busy} of ${w.slots} slots`}/>`, '140px'],
        ['Types', (w) => w.types.map((t) => html`<span class="tag">${t}</span> `), 'minmax(210px, 1fr)', 'wide'],
        ['Tags', (w) => Object.entries(w.tags ?? {}).map(([k, v]) => html`<span class="tag">${k}=${v}</span> `),
          'minmax(80px, 1fr)', 'minor'],
        ['Namespace', (w) => html`<span class="muted">${w.namespace ?? 'all'}</span>`, '96px', 'minor'],
        ['Heard', (w) => w.waiting ? html`<span class="s-missed">not since the last leader</span>` :
          html`<${Time} at=${w.last_heard}/>`, '110px']]}/>`}<//><//>`
}

const week = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun']
const pad = (n) => String(n).padStart(2, '0')

export function Calendars() {
  const list = useData((abort) => get('/calendars', {}, { abort }), [place.value.query.get('ns')], { every: 15000 })
  const [editing, setEditing] = useState(null)
  const shown = place.value.query.get('month') ?? new Date(now()).toISOString().slice(0, 7)
  const move = (by) => { const [y, m] = shown.split('-').map(Number); const d = new Date(Date.UTC(y, m - 1 + by, 1));
    setQuery({ month: d.toISOString().slice(0, 7) }) }
  const remove = async (c) => {
    if (!await ask({ title: `Delete ${c.name}?`, text: 'A calendar that jobs use cannot be deleted.', yes: 'Delete',
      danger: true })) return
    await attempt(`${c.name} was deleted.`, () => send('DELETE', `/calendars/${encodeURIComponent(c.name)}`,
      { params: { namespace: c.namespace } }))
    list.reload()
  }
  return html`<${Title} title="Calendars" sub="Times in which jobs do not fire."
    actions=${html`<${Act} className="primary" onClick=${() => setEditing({ timezone: 'UTC' })}>
    <${Icon} name="plus"/>New calendar<//>`}/>
    <${Load} of=${list} bones=${6} empty=${{ when: (d) => !d.calendars.length, icon: 'calendars', title: 'No calendars',
      text: 'A calendar has dates, weekdays, hours or intervals in which the jobs that use it do not fire.' }}>
      ${(d) => html`<div class="toolbar"><button class="button icon-only" aria-label="Previous month"
        onClick=${() => move(-1)}><${Icon} name="left"/></button><strong aria-live="polite">${monthName(shown)}</strong>
        <button class="button icon-only" aria-label="Next month" onClick=${() => move(1)}><${Icon} name="right"/>
        </button></div>
        <div class="nodes fill">${d.calendars.map((c) => html`<${Panel} key=${c.namespace + c.name} title=${c.name}
          aside=${namespace() === '*' && c.namespace} actions=${html`<${Act} className="quiet"
          onClick=${() => setEditing(c)}>Edit<//><${Act} className="quiet danger"
          onClick=${() => remove(c)}>Delete<//>`}>
          <div class="body stack"><${Month} c=${c} month=${shown}/><${Facts}
            rows=${[['Zone', c.timezone], ['Dates', c.dates?.join(', ')], ['Weekdays', c.weekdays?.join(', ')],
            ['Every day', c.daily?.join(', ')], ['Intervals', c.windows?.length &&
            c.windows.map((w) => html`<div>${w.from} to ${w.to}</div>`)]]}/></div><//>`)}</div>`}<//>
    ${editing && html`<${EditCalendar} c=${editing} close=${() => { setEditing(null); list.reload() }}/>`}`
}

const monthName = (m) => new Intl.DateTimeFormat('en-GB', { month: 'long', year: 'numeric',
  timeZone: 'UTC' }).format(Date.parse(m + '-01T00:00:00Z'))

/** A day that is out as a whole is dark; one with hours that are out has a mark. */
function Month({ c, month }) {
  const [y, m] = month.split('-').map(Number), days = new Date(Date.UTC(y, m, 0)).getUTCDate(),
    first = (new Date(Date.UTC(y, m - 1, 1)).getUTCDay() + 6) % 7
  const whole = (d) => c.dates?.includes(`${month}-${pad(d)}`) || c.dates?.includes(`${pad(m)}-${pad(d)}`) ||
    c.weekdays?.includes(week[(first + d - 1) % 7])
  const part = (d) => c.daily?.length || c.windows?.some((w) => w.from.slice(0, 10) <= `${month}-${pad(d)}` &&
    w.to.slice(0, 10) >= `${month}-${pad(d)}`)
  return html`<div class="month big" role="img"
    aria-label=${`Days in ${monthName(month)} without any occurrence: ${Array.from({ length: days }, (_, i) =>
    i + 1).filter(whole).join(', ') || 'none'}`}><div class="days" aria-hidden="true">
    ${week.map((w) => html`<i class="blank">${w[0].toUpperCase()}</i>`)}
    ${Array.from({ length: first }, () => html`<i class="blank"></i>`)}
    ${Array.from({ length: days }, (_, i) => html`<i class=${whole(i + 1) ? 'out' : part(i + 1) ? 'part' : ''}>${i + 1}
      </i>`)}</div></div>`
}

const words = (s) => s.split(/[\s,]+/).filter(Boolean)
function EditCalendar({ c, close }) {
  const [f, setF] = useState({ name: c.name ?? '', timezone: c.timezone ?? 'UTC', dates: (c.dates ?? []).join(' '),
    weekdays: (c.weekdays ?? []).join(' '), daily: (c.daily ?? []).join(' ') })
  const [error, setError] = useState(null)
  const save = async () => {
    try {
      if (!c.name) await mustBeNew(`/calendars/${encodeURIComponent(f.name)}`, 'calendar')
      await send('PUT', `/calendars/${encodeURIComponent(f.name)}`, { body: { timezone: f.timezone,
        dates: words(f.dates), weekdays: words(f.weekdays), daily: words(f.daily), windows: c.windows ?? [] },
        params: c.namespace ? { namespace: c.namespace } : {} })
      close()
    } catch (e) { setError(e) }
  }
  const field = (k, label, hint) => html`<div class="field"><label for=${'c-' + k}>${label}</label>
    <input id=${'c-' + k} class="input" disabled=${k === 'name' && !!c.name} value=${f[k]}
    aria-invalid=${!!error?.field?.startsWith(k)} onInput=${(e) => setF({ ...f, [k]: e.target.value })}/>
    <span class="hint">${hint}</span></div>`
  return html`<${Dialog} title=${c.name ? `Edit ${c.name}` : 'New calendar'} onClose=${close} form
    footer=${html`<${Act} className="primary" disabled=${!f.name} onClick=${save}>Save<//>`}>
    <div class="form">${field('name', 'Name', '')}${field('timezone', 'Zone', 'such as Europe/Berlin')}
      ${field('dates', 'Dates', '2026-12-25, or 12-25 for every year')}${field('weekdays', 'Weekdays', 'sat sun')}
      ${field('daily', 'Hours of every day', '22:00-06:00')}</div>
    ${error && html`<p class="s-failed small" role="alert">${error.detail} ${error.remedy}</p>`}<//>`
}

export function Cluster() {
  const status = useData((abort) => get('/status', {}, { abort }), [], { topics: ['cluster'], every: 2000 })
  return html`<${Load} of=${status} bones=${8}>${(s) => html`
    <${Title} title="Cluster" sub=${html`${s.leader ? html`<strong>${s.leader}</strong> leads in term ${s.term}` :
      'There is no leader'} · feature level ${s.level} · <span class="mono">${s.cluster_id}</span>`}
      actions=${html`<${Act} role="admin" not=${s.members.filter((m) => m.suffrage === 'voter' && well(m)).length < 2 &&
        'No other voter can lead.'} onClick=${() => change(status, 'The leadership is being handed over.',
        '/cluster:transfer')}>Hand over the leadership<//>`}/>
    ${s.hold && html`<div class="banner warn"><${Icon} name="bars"/><div class="grow"><p>
      <strong>On hold:</strong> restored from a backup of ${s.hold.from_cluster}. Nothing starts.</p><p>
      <${Rich} text=${s.hold.remedy}/></p></div><${Act} role="admin" onClick=${() =>
      change(status, 'The hold ends.', '/cluster:release')}>Release<//></div>`}
    ${s.troubles?.length > 0 && html`<section class="panel troubles"><ul>
      ${s.troubles.map((t) => html`<li><${Icon} name="triangle"/><div><strong>${t.node ? `${t.node}: ` : ''}${t.text}
      </strong>${t.remedy && html`<div class="muted"><${Rich} text=${t.remedy}/></div>`}</div></li>`)}</ul></section>`}
    <div class="nodes">${s.members.map((m) => html`<${Node} key=${m.id} m=${m} s=${s} changed=${status}/>`)}</div>
    <div class="cols after"><${Panel} title="This node" aside=${s.node} className="c6"><div class="body">
      <${Facts} rows=${[['State', s.state],
      ['Ready', s.ready ? 'yes' : s.not_ready], ['Started', html`<${Time} at=${s.started_at}/>`],
      ['Log', `applied ${figure(s.raft.applied_index)} of ${figure(s.raft.last_log_index)}, ` +
        `snapshot at ${figure(s.raft.last_snapshot_index)}`]]}/>
      </div><//>
      <${Panel} title="Work" className="c6"><div class="body"><${Facts}
        rows=${[['Jobs', count(s.jobs)], ['Open runs', count(s.open_runs)],
        ['Backlog', count(s.backlog) + (s.backlog_more ? '+' : '')], ['Dead letters', count(s.dead_letters)],
        ['Next due', html`<${Time} at=${s.next_due_at}/>`], ['History',
        `${count(s.history.records)} records`],
        ['Notifications', s.notifications?.waiting ?
        `${count(s.notifications.waiting)} wait: ${s.notifications.error}` : '']]}/></div><//></div>`}<//>`
}

async function change(status, said, path, body) {
  await attempt(said, () => send('POST', path, body ? { body } : {}))
  status.reload()
}

// Raft's own figures come as texts.
const figure = (text) => count(Number(text))

const well = (m) => m.state !== 'unreachable' && !m.problem

/** What would become of the cluster without a member. */
function without(s, m) {
  const voters = s.members.filter((x) => x.suffrage === 'voter'), left = voters.filter((x) => x.id !== m.id &&
    well(x)).length
  return left * 2 > voters.length
}

function Node({ m, s, changed }) {
  const gone = m.state === 'unreachable', goes = without(s, m), alone = s.members.length < 2 && 'It is the only node.'
  const about = async (title, text, yes, said, path, danger) => { if (await ask({ title, text, yes,
    danger })) change(changed, said, path, { node_id: m.id }) }
  return html`<section class=${'panel node' + (m.leader ? ' leads' : '') + (gone ? ' gone' : '')} aria-label=${m.id}>
    <h3>${m.leader && html`<${Icon} name="crown" title="leads"/>`}${m.id}<span class="grow"></span>
      <span class=${'pill ' + (gone ? 'bad' : m.problem ? 'warn' : 'good')}><span class="dot"></span>
      ${gone ? 'unreachable' : m.leaving ? 'leaving' : m.leader ? 'leader' : m.suffrage}</span></h3>
    ${m.problem && html`<p class="small s-missed">${m.problem}</p>`}
    <${Facts} rows=${[['Address', html`<code>${m.address}</code>`], ['Version',
      `${m.version ?? '–'}, level ${m.level ?? '–'}`], ['Log', m.lag == null ? '–' : m.lag ?
      `${count(m.lag)} entries behind` : 'up to date'],
      ['Clock', m.skew_ms == null ? '–' : Math.abs(m.skew_ms) < 2 ? 'exact' :
      `${m.skew_ms > 0 ? '+' : ''}${m.skew_ms} ms`],
      ['Disk', m.disk && html`${bytes(m.disk.free_bytes)} free of ${bytes(m.disk.total_bytes)}
        <${Meter} value=${m.disk.total_bytes - m.disk.free_bytes} of=${m.disk.total_bytes} label="Disk in use"/>`],
        ['Heard', html`<${Time} at=${m.last_heard}/>`]]}/>
    <p class="small">If ${m.id} dies: ${goes ? html`<strong class="s-succeeded">the cluster continues</strong>` :
      m.suffrage !== 'voter' ? html`<strong class="s-succeeded">the cluster continues</strong>` :
      html`<strong class="s-failed">the cluster stops</strong>`}</p>
    <div class="row wrapping">${!m.leader && m.suffrage === 'voter' && !gone &&
      html`<${Act} role="admin" onClick=${() => change(changed, `${m.id} is to lead.`, '/cluster:transfer',
      { node_id: m.id })}>Let it lead<//>`}
      ${m.suffrage === 'voter' ? html`<${Act} role="admin" not=${alone}
        onClick=${() => about(`Take the vote of ${m.id}?`, 'It still follows and executes runs.', 'Demote',
        `${m.id} has no vote now.`, '/cluster:demote')}>Demote<//>` : html`<${Act} role="admin"
        not=${gone && 'It does not answer.'} onClick=${() => change(changed, `${m.id} votes.`, '/cluster:promote',
        { node_id: m.id })}>Promote<//>`}
      <${Act} role="admin" className="danger" not=${alone}
        onClick=${() => about(`Remove ${m.id}?`, 'For good: its data directory cannot come back.', 'Remove',
        `${m.id} ${s.groups?.length > 1 ? 'is leaving' : 'was removed'}.`, '/cluster:remove',
        true)}>Remove<//></div></section>`
}

const bells = Array.from({ length: 10 }, (_, i) => `demo-${i + 1}`)
const kept = 90e3

export function Demo() {
  const jobs = useData((abort) => get('/jobs', { prefix: 'demo-', limit: 20 }, { abort }), [], { every: 5000 })
  const ours = (jobs.data?.jobs ?? []).filter((j) => bells.includes(j.name)).sort((a, b) =>
    bells.indexOf(a.name) - bells.indexOf(b.name))
  const [kill, setKill] = useState(null), [failed, setFailed] = useState(null)
  const begin = () => attempt('Ten bells ring every second.', async () => {
    for (const name of bells) await send('POST', '/jobs', { body: { name, type: 'shell', schedule: '@every 1s',
      payload: { command: 'true' }, tags: { demo: 'bells' }, overlap: 'allow' } }).catch((e) => {
      if (e.code !== 'duplicate_name') throw e })
  }).then(jobs.reload)
  const end = () => attempt('The bells are silent.', async () => { for (const j of ours) await send('DELETE',
    `/jobs/${j.job_id}`) }).then(jobs.reload)
  const killLeader = async () => {
    const id = cluster.value?.leader
    setFailed(null)
    const at = now()
    setKill({ id, at, back: null })
    try { await send('POST', '/dev:kill', { body: { node_id: id } }) } catch (e) {
      // The node that was asked may be the one that died before it could answer.
      if (e.code !== 'unreachable') { setKill(null); setFailed(e) }
    }
  }
  const c = cluster.value
  // Only the leader knows who answers; a node that is down knows nothing, and its page shows that much.
  const status = useData((abort) => get('/status', {}, { abort }), [], { topics: ['cluster'], every: 2000 })
  const down = (m) => m.state === 'unreachable' || (link.value === 'gone' && m.id === node.value?.id)
  useEffect(() => { if (kill && !kill.back && c?.leader && c.leader !== kill.id) setKill({ ...kill, back: now(),
    next: c.leader }) }, [c])
  return html`<${Title} title="Demo" sub="Ten jobs that ring every second, on a cluster whose leader you can kill."
      actions=${ours.length ? html`<${Act} role="admin" className="danger primary"
        not=${(c?.members?.length ?? 0) < 3 ? 'It takes three nodes.' : !c.leader && 'There is none.'}
        onClick=${killLeader}>
        <${Icon} name="bolt"/>Kill the leader${c?.leader ? ` (${c.leader})` : ''}<//>
        <${Act} onClick=${end}>Stop the bells<//>` : html`<${Act} className="primary" onClick=${begin}>
        <${Icon} name="bell"/>Ring ten bells<//>`}/>
    ${failed && (failed.absent ? html`<div class="banner info"><${Icon} name="info"/><div class="grow"><p>
      <strong>This is not a demo cluster.</strong> You can only kill a leader from here in a cluster started by:</p>
      <${Command} text="carillon dev --nodes 3"/></div></div>` : html`<${Failure} error=${failed} inline
      retry=${killLeader}/>`)}
    <div class="nodes">${(status.data?.members ?? []).map((m) => { const gone = down(m), leads = m.leader && !gone
      return html`<section key=${m.id} aria-label=${m.id}
      class=${'panel node' + (leads ? ' leads' : '') + (gone ? ' gone' : '')}><h3>
      ${leads && html`<${Icon} name="crown" title="leads"/>`}${m.id}<span class="grow"></span>
      <span class=${'pill ' + (gone ? 'bad' : 'good')}><span class="dot"></span>
      ${gone ? 'unreachable' : leads ? 'leader' : m.suffrage}</span></h3>
      <span class="muted small"><code>${m.address}</code>${m.id === node.value?.id ? ' · this page' : ''}</span>
        </section>` })}</div>
    <${Verdict} kill=${kill} jobs=${ours}/>
    <${Panel} className="after" title="Bells" aside="a bar for each second">
      ${ours.length ? html`<div class="bells">${ours.map((j) => html`<${Ticks} key=${j.job_id} job=${j}/>`)}</div>` :
      html`<div class="state"><${Icon} name="bell"/><h3>No bells are ringing</h3>
      <p>Start ten jobs that run every second, then kill the leader and look for a gap.</p></div>`}<//>`
}

function Ticks({ job }) {
  const d = useData((abort) => get(`/jobs/${job.job_id}/occurrences`, { from: new Date(now() - kept).toISOString(),
    to: new Date(now()).toISOString() }, { abort }), [job.job_id], { topics: ['job:' + job.job_id], every: 1000 })
  const list = (d.data?.occurrences ?? []).slice(-90)
  const done = list.filter((o) => o.fate === 'succeeded').length
  return html`<div class="bell"><a href=${`/ui/jobs/${job.name}`}>${job.name}</a>
    <div class="ticks" role="img" aria-label=${`${done} of the last ${list.length} rang`}>
    ${list.map((o) => html`<i key=${o.scheduled_at} class=${'s-' + (fates[o.fate] ? o.fate : 'waiting')}
    style=${{ height: (fates[o.fate]?.bar ?? .3) * 22 + 'px' }} title=${`${clock(Date.parse(o.scheduled_at), 'UTC',
    { date: false })} ${o.fate}`}></i>`)}</div><span class="muted">${done} of ${list.length}</span></div>`
}
/** What the kill cost, by the history: how long nothing started, and what became of the occurrences around it. */
function Verdict({ kill, jobs }) {
  const [sum, setSum] = useState(null)
  second.value
  const done = kill?.back && now() > kill.back + 6000
  useEffect(() => {
    if (!done) { setSum(null); return }
    let ended = false
    const from = new Date(kill.at - 5000).toISOString(), to = new Date(kill.back + 4000).toISOString()
    Promise.all(jobs.map((j) => get(`/jobs/${j.job_id}/occurrences`, { from, to }))).then((all) => {
      if (ended) return
      const s = { expected: 0, lost: 0, twice: 0, again: 0 }
      const starts = all.flatMap((a) => a.occurrences.map((o) => Date.parse(o.started_at))).filter(Boolean)
        .sort((a, b) => a - b)
      s.gap = starts.reduce((most, t, i) => Math.max(most, t - starts[i - 1] || 0), 0)
      for (const a of all) {
        s.expected += a.summary.expected
        const seen = new Set()
        for (const o of a.occurrences) {
          if (o.fate === 'unaccounted' || o.fate === 'lost' || o.fate === 'missed') s.lost += o.count ?? 1
          if (o.run_id && seen.has(o.scheduled_at)) s.twice++
          if (o.attempts > 1) s.again++
          seen.add(o.scheduled_at)
        }
      }
      setSum(s)
    }, () => {})
    return () => { ended = true }
  }, [done, kill?.at])
  if (!kill) return null
  const alone = link.value === 'gone'
  return html`<${Panel} className="after"><div class="body" role="status"><p class="verdict">
    ${sum ? `gap ${duration(sum.gap)}` : alone ? `${kill.id} is down` : kill.back ? `${kill.next} leads` :
      `no leader for ${duration(now() - kill.at)}`}
    ${sum ? html` · <span class=${sum.lost ? 's-failed' : 's-succeeded'}>
    ${count(sum.lost)} lost</span> · <span class=${sum.twice ? 's-failed' : 's-succeeded'}>
    ${count(sum.twice)} twice</span>` : ''}</p>
    <p class="muted small">${kill.id} was killed${kill.next ? `, ${kill.next} leads now` : ''}.${sum ?
      ` ${count(sum.expected)} occurrences were looked at${sum.again ?
      `, ${count(sum.again)} of them tried again: their node died` : ''}.` : alone ?
      ' This page is served by it, and counts when it is back.' : kill.back ?
      ' Counting what happened to the occurrences around it…' : ''}</p></div><//>`
}
